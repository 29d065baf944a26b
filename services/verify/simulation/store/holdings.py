"""When shards were held: a scheduler has said that it picks nothing of one any more, as it is about
to be split (`shared.store.splits`)."""

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class Holding:
    """From what a scheduler has said until another loads the shard, or the split is given up;
    virtual seconds."""

    shard: int
    begun: float
    ended: float = math.inf


@dataclass(slots=True)
class Holdings:
    """Of all shards."""

    ever: list[Holding] = field(default_factory=list)
    _open: dict[int, Holding] = field(default_factory=dict)

    def begin(self, shard: int, now: float) -> None:
        """A shard is held; if it was already, since then."""
        if shard not in self._open:
            self._open[shard] = Holding(shard, now)
            self.ever.append(self._open[shard])

    def end(self, shard: int, now: float) -> None:
        """A shard is held no more, if it was."""
        if holding := self._open.pop(shard, None):
            holding.ended = now
