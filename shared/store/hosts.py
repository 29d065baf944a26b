"""What is learned of a host, packed to a fixed width in the database: signal sources and bursts."""

import json
from collections.abc import Sequence
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from shared.policy.estimation.bursts import (
    AGE_BINS,
    PRIOR_CHANGES,
    burst_multipliers,
    bursts_trusted,
)
from shared.policy.estimation.first_guesses import INITIAL_PRECISION
from shared.policy.estimation.sources import effective_signal_evidence, usual_mix
from shared.store.binary import Blobs
from shared.store.history import SOURCES

Floats = NDArray[np.float64]

_PACKED: Final = np.dtype(
    [
        ("precision", "<f8", (SOURCES,)),
        ("signals", "<f8", (SOURCES,)),
        ("expected_changes", "<f8", (AGE_BINS,)),
        ("predicted_changes", "<f8", (AGE_BINS,)),
    ]
)

PACKED_BYTES: Final = _PACKED.itemsize
"""Width of a packed host."""

NO_SOURCES: Final = "[]"
"""The sources of a host that never had a signal."""


class BadHostLearning(ValueError):
    """A packed host that this version cannot read."""


class HostLearning(NamedTuple):
    """What many hosts' crawls and signals say of their pages in common."""

    precision: Floats
    """Prior mean precision of each source slot; (hosts, SOURCES)."""
    signals: Floats
    """All signals ever, by source slot; (hosts, SOURCES)."""
    expected_changes: Floats
    """E of the burst tables (`shared.policy.estimation.bursts`); (hosts, AGE_BINS)."""
    predicted_changes: Floats
    """X of the burst tables; (hosts, AGE_BINS)."""

    @classmethod
    def initial(cls, hosts: int) -> Self:
        """Nothing is known."""
        return cls(
            np.full((hosts, SOURCES), INITIAL_PRECISION),
            np.zeros((hosts, SOURCES)),
            np.full((hosts, AGE_BINS), PRIOR_CHANGES),
            np.full((hosts, AGE_BINS), PRIOR_CHANGES),
        )

    def take(self, rows: NDArray[np.int64]) -> Self:
        """A copy of some rows."""
        return type(self)(*(column[rows] for column in self))

    @property
    def multipliers(self) -> Floats:
        """Burst multipliers M by bin of age, 1 where bursts are not used; (hosts, AGE_BINS)."""
        used = bursts_trusted(self.signals, self.precision)[:, np.newaxis]
        return np.where(used, burst_multipliers(self.expected_changes, self.predicted_changes), 1.0)

    @property
    def source_evidence(self) -> Floats:
        """κ of one signal of each slot; (hosts, SOURCES)."""
        return evidence_of(self.precision)

    @property
    def evidence(self) -> Floats:
        """κ̄: one jump that stands for a signal of whatever source; (hosts,)."""
        return effective_signal_evidence(usual_mix(self.signals), self.source_evidence)


def evidence_of(precision: NDArray[np.float64]) -> Floats:
    """κ = −ln(1 − p), elementwise."""
    return np.asarray(-np.log1p(-precision), dtype=np.float64)


def pack_hosts(learned: HostLearning) -> Blobs:
    """Pack what was learned of hosts."""
    packed = np.empty(len(learned.precision), _PACKED)
    for name, column in zip(HostLearning._fields, learned, strict=True):
        packed[name] = column
    return Blobs(packed.view(np.uint8), np.arange(packed.size + 1, dtype=np.int64) * PACKED_BYTES)


def unpack_hosts(packed: bytes, hosts: int) -> HostLearning:
    """Unpack hosts that stand one after the other.

    Raises:
        BadHostLearning: another width.
    """
    if len(packed) != hosts * PACKED_BYTES:
        raise BadHostLearning(
            f"{hosts} hosts take {hosts * PACKED_BYTES} bytes, not {len(packed)}: this database "
            "was written by another version of Freshet; upgrade this one"
        )
    rows = np.frombuffer(packed, _PACKED)
    return HostLearning(*(rows[name].astype(np.float64) for name in HostLearning._fields))


INITIAL: Final = pack_hosts(HostLearning.initial(1)).arena.tobytes()
"""A packed host of which nothing is known."""


def pack_sources(names: Sequence[str]) -> str:
    """The names of a host's first sources, as they are stored."""
    return json.dumps(list(names), ensure_ascii=False)


def unpack_sources(stored: str) -> list[str]:
    """The names again."""
    # Most hosts have none yet, and there may be hundreds of thousands.
    return [] if stored == NO_SOURCES else [str(name) for name in json.loads(stored)]
