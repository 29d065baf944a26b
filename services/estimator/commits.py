"""What a batch of an estimator makes durable, in one transaction."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from services.estimator.application import ShardEffects
from shared.store.owners import Announcing

Offsets = Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True)
class Commit:
    """What a batch makes durable."""

    done: Sequence[ShardEffects]
    """Effects, in rising order of shards."""
    owned: Mapping[int, int]
    """Shards that it is about → the epoch in which this process owns each. Of a refit, all that it
    was made from."""
    before: Offsets
    """The positions that this process believes to hold."""
    after: Offsets
    """Those after the batch."""
    announcing: Mapping[int, Announcing]
    """Shard → what is announced of it once the batch is durable."""
    recorded_at: float
    """Clock time, Unix seconds."""
    hurried: bool
    """Others wait meanwhile: a lock is waited for only a moment."""

    @classmethod
    def of_positions(
        cls, owned: Mapping[int, int], before: Offsets, after: Offsets, at: float
    ) -> "Commit":
        """That of positions alone; see the fields."""
        return cls((), owned, before, after, {}, at, hurried=True)

    def without(self, shards: Collection[int]) -> "Commit":
        """The same of the other shards alone."""
        return replace(
            self,
            done=[part for part in self.done if part.shard.number not in shards],
            owned={n: epoch for n, epoch in self.owned.items() if n not in shards},
            after={key: offset for key, offset in self.after.items() if key[1] not in shards},
            announcing={n: part for n, part in self.announcing.items() if n not in shards},
        )
