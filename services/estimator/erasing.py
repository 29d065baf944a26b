"""Pages and hosts that are erased: which a batch's updates name, and how memory forgets them.

Until the batch is durable a page that is erased is one of which nothing is known, and which is
removed: the batch's other records find it so. Then its row goes from the database, and from memory.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from services.estimator.columns import ERASE, UpdateColumns
from services.estimator.decoding import Updates
from services.estimator.shard import Shard
from shared.contracts.identity import host_id_of
from shared.rules.host_rules import HostRules
from shared.store.class_numbers import AS_IT_IS
from shared.store.page_status import NEVER, REMOVED


class ErasedHost(NamedTuple):
    """A host that is erased."""

    row: int
    erased_at: float
    """Time of the update that says so, Unix seconds."""
    has_pages: bool
    """Whether some of its pages stay, which newer updates name or remove: then it is a new one."""
    is_ruled: bool
    """Whether somebody has set a rule for it since: that stays."""

    @property
    def is_kept(self) -> bool:
        """Whether there is still such a host."""
        return self.has_pages or self.is_ruled


class ErasedAgain(NamedTuple):
    """What is erased that is not there: what came before that must not bring it back either."""

    pages: dict[int, float]
    """Page id → time of the update that says so, Unix seconds; of pages that were erased before."""
    hosts: dict[int, float]
    """The same of hosts, by their ids."""

    @classmethod
    def nothing(cls) -> Self:
        """No page and no host."""
        return cls({}, {})

    def __bool__(self) -> bool:
        return bool(self.pages or self.hosts)


_ABSENT: Final = (ERASE, np.nan, np.nan, -np.inf, False, AS_IT_IS)
"""The columns of an update that erases a page, from `operations` on."""


def with_whole_hosts(shard: Shard, updates: Updates, columns: UpdateColumns) -> UpdateColumns:
    """The columns of updates, and one more update for each page of the hosts that are erased.

    Looks through all pages of the shard for each of those hosts.
    """
    parts: list[Sequence[NDArray[Any]]] = [columns]
    places = [np.arange(columns.rows.size)]
    for event in np.flatnonzero(updates.whole_host).tolist():
        host = shard.hosts.row(updates.pages[event].host)
        if host is None:
            continue
        shard.read_host(host)
        rows = np.flatnonzero(shard.pages["host"] == host)
        of_update: Sequence[NDArray[Any]] = columns[2:]
        types = [column.dtype for column in of_update]
        others = [np.full(rows.size, v, kind) for v, kind in zip(_ABSENT, types, strict=True)]
        parts.append([rows, np.full(rows.size, updates.times[event]), *others])
        places.append(np.full(rows.size, event))
    if len(parts) == 1:
        return columns
    together = [np.concatenate(column) for column in zip(*parts, strict=True)]
    # Of one time, what comes after it in the topic holds.
    order = np.lexsort((np.concatenate(places), together[1]))
    return UpdateColumns(*(column[order] for column in together))


def erased_rows(
    shard: Shard, columns: UpdateColumns, is_applied: NDArray[np.bool_]
) -> NDArray[np.int64]:
    """Rows of pages that updates have erased, and that no newer one has brought back."""
    if not (columns.operations == ERASE).any():
        return np.empty(0, np.int64)
    rows = np.unique(columns.rows[is_applied & (columns.operations == ERASE)])
    shard.pages["factor"][rows] = shard.hosts.factors_of(shard.pages[rows])
    erased: NDArray[np.int64] = rows[shard.pages["status"][rows] == REMOVED]
    return erased


def erased_again(shard: Shard, updates: Updates) -> ErasedAgain:
    """What updates erase, before they are applied, that is not there; it is noted in memory.

    Of pages that never were nothing is kept: anybody may name any number of them.
    """
    found = ErasedAgain.nothing()
    for event in np.flatnonzero(updates.operations == ERASE).tolist():
        page, time = updates.pages[event], float(updates.times[event])
        is_host = bool(updates.whole_host[event]) and shard.hosts.row(page.host) is None
        if is_host and shard.removals.of_host(page.host) < time:
            shard.removals.note_host(page.host, time)
            found.hosts[host_id_of(page.host)] = time
        if not NEVER < shard.removals.of_page(page.page_id) < time:
            continue
        if shard.rows_of(np.array([page.page_id], np.int64))[0] < 0:
            shard.removals.note(page.page_id, time)
            found.pages[page.page_id] = time
    return found


def erased_hosts(shard: Shard, updates: Updates, erased: NDArray[np.int64]) -> list[ErasedHost]:
    """The hosts that updates erase, after they were applied.

    Args:
        shard: to which they were applied.
        updates: all of a batch.
        erased: rows of the pages that they erase.
    """
    latest: dict[int, float] = {}
    for event in np.flatnonzero(updates.whole_host).tolist():
        host = shard.hosts.row(updates.pages[event].host)
        if host is not None:
            latest[host] = float(updates.times[event])
    if not latest:
        return []
    stays = np.ones(len(shard.pages), np.bool_)
    stays[erased] = False
    of_host, records = shard.pages["host"], shard.hosts.records
    return [
        ErasedHost(
            row,
            time,
            has_pages=bool((stays & (of_host == row)).any()),
            is_ruled=bool(records["limit_updated_at"][row] > time)
            and HostRules.read(records[row]).says_anything,
        )
        for row, time in latest.items()
    ]
