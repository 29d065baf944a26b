"""Faults of the estimator where it keeps few pages in memory, and reads the others."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.estimator.application import ShardEffects, by_page_id
from services.estimator.commits import Commit
from services.estimator.persistence import Store
from services.estimator.shard import Shard
from services.verify.mutants.mutant import Planted, Promise, breaks
from services.verify.simulation.replacing import instead
from shared.store.learned_pages import LearnedPages


@breaks(Promise.LOST, "rebalance")
def pages_leave_before_their_commit() -> Planted:
    """What a batch has changed leaves memory before it is committed, and is read again."""
    original = Store.commit

    def commit(self: Store, batch: Commit) -> None:
        original(self, replace(batch, done=[_read_again(part) for part in batch.done]))

    return instead(Store, "commit", commit)


def _read_again(part: ShardEffects) -> ShardEffects:
    shard = part.shard
    rows = (part.touched, part.added, part.erased)
    names = [shard.pages["page_id"][some].copy() for some in rows]
    shard.keep(np.setdiff1d(np.arange(len(shard.pages)), part.touched))
    touched, added, erased = (by_page_id(shard, shard.rows_of(some)) for some in names)
    return replace(part, touched=touched, added=added, erased=erased)


@breaks(Promise.LOST, "rebalance")
def pages_read_as_they_once_were() -> Planted:
    """Of a page that was read before, what was read then is taken."""
    original = Store.read_pages
    read: dict[tuple[int, ...], LearnedPages] = {}

    def read_pages(
        self: Store, shard: int, epoch: int, page_ids: NDArray[np.int64], *more: Any
    ) -> LearnedPages:
        key = (id(self), shard, *page_ids.tolist())
        if key not in read:
            read[key] = original(self, shard, epoch, page_ids, *more)
        return read[key]

    return instead(Store, "read_pages", read_pages)


@breaks(Promise.LOST, "rebalance")
def pages_unknown_for_ever() -> Planted:
    """Pages that were not there once are taken for unknown, though they were added since."""
    original = Shard.add_pages

    def add_pages(self: Shard, new: list[Any]) -> NDArray[np.int64]:
        known = set(self._absent)
        rows = original(self, new)
        self._absent |= known
        return rows

    return instead(Shard, "add_pages", add_pages)
