"""Which hosts lie below domains that have limits: of all hosts of a shard at once.

The rule is `shared.rules.host_groups.group_of`. A shard may have a million hosts, and be given
other limits between two ticks: so they are looked at where their names lie, at a tenth of a
microsecond each.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.host_names import HostNames
from services.scheduler.state.rows import NO_GROUP
from shared.policy.compiled import compiled

_OFFSET: Final = np.uint64(14695981039346656037)
_PRIME: Final = np.uint64(1099511628211)
"""Of FNV-1a, from the last byte to the first: what ends alike is hashed once."""

_DOT: Final = ord(".")
_COLON: Final = ord(":")
_BRACKET: Final = ord("]")


class _Domains(NamedTuple):
    """Domains in rising order of their hashes."""

    hashes: NDArray[np.uint64]
    numbers: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    texts: NDArray[np.uint8]


@compiled
def _hashes(
    texts: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64],
    hashes: NDArray[np.uint64],
) -> None:
    for place in range(starts.size):
        value = _OFFSET
        for byte in range(lengths[place] - 1, -1, -1):
            value = (value ^ np.uint64(texts[starts[place] + byte])) * _PRIME
        hashes[place] = value


@compiled
def _number_of(
    source: NDArray[np.uint8], begin: int, end: int, value: np.uint64, domains: _Domains
) -> int:
    """Number of the domain that these bytes are, whose hash this is."""
    place = np.searchsorted(domains.hashes, value)
    while place < domains.hashes.size and domains.hashes[place] == value:
        is_it = domains.lengths[place] == end - begin
        byte = 0
        while is_it and byte < end - begin:
            is_it = domains.texts[domains.starts[place] + byte] == source[begin + byte]
            byte += 1
        if is_it:
            return int(domains.numbers[place])
        place += 1
    return NO_GROUP


@compiled
def _without_port(source: NDArray[np.uint8], begin: int, end: int) -> int:
    """Where the host itself ends."""
    if end == begin or source[end - 1] == _BRACKET:
        return end
    for byte in range(end - 1, begin, -1):
        if source[byte] == _COLON:
            return byte
    return end


@compiled
def _nearest(
    loaded: NDArray[np.uint8],
    added: NDArray[np.uint8],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int32],
    hosts: NDArray[np.int64],
    domains: _Domains,
    found: NDArray[np.int32],
) -> None:
    for place in range(hosts.size):
        begin = starts[hosts[place]]
        source = loaded
        if begin >= loaded.size:
            source = added
            begin -= loaded.size
        end = _without_port(source, begin, begin + lengths[hosts[place]])
        value, number = _OFFSET, NO_GROUP
        for first in range(end - 1, begin - 1, -1):
            value = (value ^ np.uint64(source[first])) * _PRIME
            if first == begin or source[first - 1] == _DOT:
                longer = _number_of(source, first, end, value, domains)
                number = number if longer == NO_GROUP else longer
        found[place] = number


class HostDomains:
    """Domains that have limits, and their numbers."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        """Make them.

        Args:
            numbers: by domain.
        """
        texts = [name.encode() for name in numbers]
        lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        starts = np.cumsum(lengths) - lengths
        data = np.frombuffer(b"".join(texts) or b"\0", np.uint8)
        hashes = np.empty(len(texts), np.uint64)
        _hashes(data, starts, lengths, hashes)
        order = np.argsort(hashes, kind="stable")
        by_domain = np.fromiter(numbers.values(), np.int32, len(texts))
        self._domains = _Domains(
            hashes[order], by_domain[order], starts[order], lengths[order], data
        )

    def numbers_of(self, names: HostNames, hosts: NDArray[np.int64]) -> NDArray[np.int32]:
        """Of some hosts, the number of the nearest domain, or `NO_GROUP`."""
        found = np.full(hosts.size, NO_GROUP, np.int32)
        if self._domains.hashes.size:
            _nearest(*names.texts.columns, hosts, self._domains, found)
        return found
