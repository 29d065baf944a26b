"""Several shards at a virtual clock that have the hosts of one: a replay goes on with them where
the number of shards has grown.

Each has the slots that its hosts would have had without the growth: how a budget is shared out is
the coordinator's, and no part of what a growth may lose.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from services.estimator.refitting import Refits, merged, refit
from services.replay.columns import Columns
from services.replay.trace import Trace
from services.replay.virtual_estimator import (
    MATERIAL_CHANGE,
    PRIOR_REFIT_DAYS,
    Batch,
    News,
    VirtualEstimator,
)
from services.replay.virtual_shard import VirtualShard
from shared.contracts.identity import shard_of
from shared.units import SECONDS_PER_DAY

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def shards_of_pages(trace: Trace, shards: int) -> Integers:
    """The shard of each page of a trace, by the name of its host."""
    of_host = np.array([shard_of(name, shards) for name in trace.host_names], np.int64)
    return of_host[trace.host]


class SplitShards:
    """The schedulers' part: in the place of a `VirtualShard`."""

    def __init__(
        self, parts: Sequence[VirtualShard], of_page: Integers, slot_days: Floats, turns: Integers
    ) -> None:
        """Go on with shards.

        Args:
            parts: by their numbers.
            of_page: the shard of each page.
            slot_days: all slots of the replay, rising.
            turns: the shard that each slot is of; −1: of none.
        """
        self._parts, self._of_page = parts, of_page
        self._slot_days, self._turns = slot_days, turns
        self.values = np.empty(0)

    @property
    def work(self) -> dict[str, int]:
        """As of all together."""
        each = [part.work for part in self._parts]
        return {name: sum(one[name] for one in each) for name in each[0]}

    def add(self, rows: Integers) -> None:
        """As of a `VirtualShard`."""
        for part, mine in self._shared(rows):
            part.add(rows[mine])

    def select(self, slot_days: Floats, before: float) -> Integers:
        """As of a `VirtualShard`."""
        first = int(np.searchsorted(self._slot_days, slot_days[0]))
        turns = self._turns[first : first + slot_days.size]
        found, values = np.full(slot_days.size, -1, np.int64), [np.empty(0)]
        for number, part in enumerate(self._parts):
            if not (mine := turns == number).any():
                continue
            earlier = self._slot_days[:first][self._turns[:first] == number]
            last = float(earlier[-1]) if earlier.size else before
            found[mine] = part.select(slot_days[mine], last)
            values.append(part.values)
        self.values = np.concatenate(values)
        return found

    def crawled(self, rows: Integers, days: Floats, changed: NDArray[np.bool_]) -> None:
        """As of a `VirtualShard`."""
        for part, mine in self._shared(rows):
            part.crawled(rows[mine], days[mine], changed[mine])

    def signalled(self, rows: Integers, days: Floats, slots: Integers) -> None:
        """As of a `VirtualShard`."""
        for part, mine in self._shared(rows):
            part.signalled(rows[mine], days[mine], slots[mine])

    def learned(self, news: News) -> None:
        """As of a `VirtualShard`."""
        for number, part in enumerate(self._parts):
            mine = self._of_page[news.pages] == number
            hosts = [one for one in news.hosts if shard_of(one.host, len(self._parts)) == number]
            part.learned(
                News(
                    news.pages[mine],
                    news.alpha[mine],
                    news.kappa[mine],
                    news.gamma[mine],
                    news.activity[mine],
                    hosts,
                )
            )

    def told(self, columns: Columns, rows: Integers) -> None:
        """As of a `VirtualShard`."""
        for part, mine in self._shared(rows):
            part.told(columns, rows[mine])

    def _shared(self, rows: Integers) -> list[tuple[VirtualShard, NDArray[np.bool_]]]:
        shards = self._of_page[rows]
        return [
            (part, mine)
            for number, part in enumerate(self._parts)
            if (mine := shards == number).any()
        ]


class SplitEstimators:
    """The estimators' part: in the place of a `VirtualEstimator`."""

    def __init__(
        self, parts: Sequence[VirtualEstimator], of_page: Integers, *, together: bool
    ) -> None:
        """Go on with shards.

        Args:
            parts: by their numbers.
            of_page: the shard of each page.
            together: one estimator has all of them, and fits what hosts have in common from all;
                else each has one.
        """
        self._parts, self._of_page, self._together = parts, of_page, together
        self._refits = Refits(PRIOR_REFIT_DAYS)

    def add(self, rows: Integers) -> None:
        """As of a `VirtualEstimator`."""
        for number, part in enumerate(self._parts):
            if (mine := rows[self._of_page[rows] == number]).size:
                part.add(mine)

    def take(self, batch: Batch, day: float) -> News:
        """As of a `VirtualEstimator`."""
        batches = [self._part_of(batch, number) for number in range(len(self._parts))]
        if not self._together:
            return _joined([p.take(b, day) for p, b in zip(self._parts, batches, strict=True)])
        now = float(day) * SECONDS_PER_DAY
        shards = [part.shard for part in self._parts]
        is_due = self._refits.are_due(shards, now)
        done = [part.applied(one) for part, one in zip(self._parts, batches, strict=True)]
        if is_due:
            by_number = {shard.number: one for shard, one in zip(shards, done, strict=True)}
            done = merged(by_number, shards, refit(shards, MATERIAL_CHANGE))
            self._refits.noted(shards, now, 0.0)
        return _joined([part.news(one, now) for part, one in zip(self._parts, done, strict=True)])

    def _part_of(self, batch: Batch, number: int) -> Batch:
        signals = self._of_page[batch.signal_pages] == number
        crawls = self._of_page[batch.crawled] == number
        return Batch(
            *(column[signals] for column in batch[:3]), *(column[crawls] for column in batch[3:])
        )


def _joined(news: Sequence[News]) -> News:
    return News(
        np.concatenate([one.pages for one in news]),
        np.concatenate([one.alpha for one in news]),
        np.concatenate([one.kappa for one in news]),
        np.concatenate([one.gamma for one in news]),
        np.concatenate([one.activity for one in news]),
        [host for one in news for host in one.hosts],
    )
