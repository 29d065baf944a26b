"""Which shard has a host, also while the number of shards grows.

A host's place is murmur2(host) mod the number of partitions (`shared.contracts.identity`). The
number grows by an integer factor k: as murmur2 mod kP ≡ murmur2 mod P (mod P), the hosts of shard s
are those of s, s+P, s+2P, … together, and nobody else's. So partitions are added first, and then
each shard is split by itself, at a moment of its own. Before that moment all of its family's hosts
are the parent's, whatever partition a record of them came on; after it each is its own shard's. The
next growth splits those in their turn.

Producers learn of new partitions when they like. A record on a partition of the right family that
is not its shard's is passed on to the shard that has the host; on a partition of another family it
is a mistake of its producer.
"""

from dataclasses import dataclass
from typing import Final, Self

from shared.contracts.identity import shard_of


@dataclass(frozen=True, slots=True)
class Layout:
    """How the hosts are shared out among the shards."""

    shards: int
    """As many as each topic of theirs has partitions."""
    grown_from: int
    """How many there were before the last growth; as many as now if there was none."""
    split: frozenset[int]
    """Shards of before that have been split."""
    earlier: tuple[int, ...] = ()
    """How many there were before the growths before the last one, the oldest first."""

    @classmethod
    def of(cls, shards: int) -> Self:
        """That of an installation which never grew."""
        return cls(shards, shards, frozenset())

    def grown_to(self, shards: int) -> Self:
        """That of the next growth, when nothing is split yet."""
        return type(self)(shards, self.shards, frozenset(), self.counts[:-1])

    @property
    def counts(self) -> tuple[int, ...]:
        """How many there were and are, rising: each is a multiple of the one before."""
        return (*self.earlier, *sorted({self.grown_from, self.shards}))

    @property
    def to_split(self) -> int:
        """How many shards a growth has still to split; 0: none is under way."""
        return self.grown_from - len(self.split) if self.shards > self.grown_from else 0

    @property
    def is_growing(self) -> bool:
        """Whether shards are still to be split."""
        return self.to_split > 0

    def shard_of(self, host: str) -> int:
        """The shard that has a host."""
        shard = shard_of(host, self.shards)
        parent = self.parent_of(shard)
        return shard if shard == parent or parent in self.split else parent

    def is_near(self, host: str, shard: int) -> bool:
        """Whether a record of a host may stand on a shard's partition: both come of the same shard
        of the very beginning, as what was sent may have been left there over several growths."""
        first = self.counts[0]
        return shard_of(host, first) == shard % first

    def parent_of(self, shard: int) -> int:
        """The shard that had a shard's hosts before the last growth; itself, if it was there."""
        return shard % self.grown_from

    def family_of(self, parent: int) -> range:
        """A shard of before, and those that its hosts are split among."""
        return range(parent, self.shards, self.grown_from)

    def ancestors_of(self, shard: int) -> list[int]:
        """The shards that have had a shard's hosts, one after the other, and itself at the end."""
        return sorted({shard % count for count in self.counts})

    def places_of(self, host: str) -> set[int]:
        """The partitions on which a host's records belong now, and belonged before growths."""
        return {shard_of(host, count) for count in self.counts}

    @property
    def having_hosts(self) -> list[int]:
        """The shards that can have hosts: others get theirs, and their room in the database, when
        the shard of before is split."""
        return [shard for shard in range(self.shards) if self.modulus_of(shard)]

    def modulus_of(self, shard: int) -> int:
        """m, where a shard's hosts are those with murmur2 mod m ≡ the shard; 0: it has none yet.
        Two layouts give a shard the same hosts where this is the same."""
        if self.parent_of(shard) in self.split:
            return self.shards
        return self.grown_from if shard < self.grown_from else 0


MOST_SHARDS: Final = 4096
"""An installation has no more."""

ALONE: Final = Layout.of(1)
"""That of a single shard, which has all hosts."""
