"""How much faster or slower pages of a host change by their directory and by their signals.

Packed in a column of its own, which only a refit writes: the factors of activity, and those of the
directories whose pages are known to differ, each with the directory's number
(`shared.store.directories`). However many directories a host invents, no more are kept than
`MOST_DIRECTORIES`: those of which most was seen.
"""

from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shared.policy.estimation.page_factors import ACTIVITY_BINS

MOST_DIRECTORIES: Final = 1024

_ENTRY: Final = np.dtype([("directory", "<u2"), ("factor", "<f8")])
_ACTIVITY_BYTES: Final = 8 * ACTIVITY_BINS

NONE: Final = b""
"""Packed factors of a host of which nothing is known."""


class BadHostFactors(ValueError):
    """Packed factors that this version cannot read."""


class HostFactors(NamedTuple):
    """Of one host; see `shared.policy.estimation.page_factors`."""

    activity: NDArray[np.float64]
    """C by activity, (ACTIVITY_BINS,)."""
    directories: NDArray[np.uint16]
    """Numbers of those that differ, rising."""
    factors: NDArray[np.float64]
    """D of each."""

    @classmethod
    def none(cls) -> Self:
        """Nothing is known."""
        return cls(np.ones(ACTIVITY_BINS), np.empty(0, np.uint16), np.empty(0))

    @property
    def is_known(self) -> bool:
        """Whether any of them is not 1."""
        # Of most hosts nothing is known, and numpy would take two microseconds for each.
        return self is not NO_FACTORS and bool(
            self.directories.size or (self.activity != 1.0).any()
        )

    def is_beyond(self, other: Self, tolerance: float) -> bool:
        """Whether a factor is another, by more than so much, relatively."""
        every = self.directories
        if not np.array_equal(every, other.directories):
            every = np.union1d(every, other.directories)
        mine = np.concatenate([self.activity, self.of(every)])
        theirs = np.concatenate([other.activity, other.of(every)])
        return bool((np.abs(mine - theirs) > tolerance * theirs).any())

    def of(self, directories: NDArray[np.uint16]) -> NDArray[np.float64]:
        """D of some directories; 1 of those that are not named."""
        found = np.ones(directories.size)
        if self.directories.size:
            places = np.searchsorted(self.directories, directories)
            places = np.minimum(places, self.directories.size - 1)
            known = self.directories[places] == directories
            found[known] = self.factors[places[known]]
        return found


NO_FACTORS: Final = HostFactors.none()
"""Of all hosts of which nothing is known, of which there may be a million; not to be written."""
for _column in NO_FACTORS:
    _column.setflags(write=False)


def pack_factors(factors: HostFactors) -> bytes:
    """The factors of a host, as they are stored."""
    entries = np.empty(factors.directories.size, _ENTRY)
    entries["directory"], entries["factor"] = factors.directories, factors.factors
    return factors.activity.astype("<f8").tobytes() + entries.tobytes()


def unpack_factors(packed: bytes) -> HostFactors:
    """The factors again.

    Raises:
        BadHostFactors: another width.
    """
    if packed == NONE:
        return NO_FACTORS
    if len(packed) < _ACTIVITY_BYTES or (len(packed) - _ACTIVITY_BYTES) % _ENTRY.itemsize:
        raise BadHostFactors(
            f"the factors of a host cannot take {len(packed)} bytes: this database was written by "
            "another version of Freshet; upgrade this one"
        )
    entries = np.frombuffer(packed, _ENTRY, offset=_ACTIVITY_BYTES)
    activity = np.frombuffer(packed, "<f8", ACTIVITY_BINS).astype(np.float64)
    return HostFactors(
        activity, entries["directory"].astype(np.uint16), entries["factor"].astype(np.float64)
    )
