"""The pages of a class that its slots may go to: the best that can be crawled soon.

The best of all would not do: a host at its limit may have more of them than there are candidates,
and so may all hosts of a group. So each host has as many as it can take until candidates are found
anew, and each group likewise; where these are few, the best of the others come with them.
"""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board
from services.scheduler.picking.heap import pop, push
from services.scheduler.state.group_rows import part_of
from services.scheduler.state.hosts import capacity
from services.scheduler.state.rows import NO_GROUP
from shared.policy.compiled import compiled


@compiled
def best_of_each(
    priorities: NDArray[np.float64], keys: NDArray[np.int32], rooms: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Places of the best of each kind, as many of it as there is room for; none of priority 0.

    Args:
        priorities: of pages.
        keys: the kind of each.
        rooms: by kind.
    """
    counts = np.zeros(rooms.size, np.int64)
    for place in range(keys.size):
        counts[keys[place]] += priorities[place] > 0.0
    begins = np.zeros(rooms.size + 1, np.int64)
    for kind in range(rooms.size):
        begins[kind + 1] = begins[kind] + min(counts[kind], rooms[kind])
    # Of each kind a heap, with the one that leaves first on top.
    leaving, items = np.empty(begins[-1]), np.empty(begins[-1], np.int32)
    counts[:] = 0
    for place in range(keys.size):
        priority, kind = priorities[place], keys[place]
        begin, end = begins[kind], begins[kind + 1]
        if not priority > 0.0 or begin == end:
            continue
        if counts[kind] == end - begin:
            if -leaving[begin] >= priority:
                continue
            counts[kind] = pop(leaving[begin:end], items[begin:end], counts[kind])
        counts[kind] = push(leaving[begin:end], items[begin:end], counts[kind], -priority, place)
    return items.astype(np.int64)


@compiled
def _rooms_of_hosts(board: Board, now: float, until: float) -> NDArray[np.int64]:
    rooms = np.zeros(board.hosts.size, np.int64)
    for number in range(rooms.size):
        host = board.hosts[number]
        soon = min(capacity(host, now, until), float(host.pages))
        rooms[number] = int(min(soon, float(host.most_open)) if host.most_open > 0 else soon)
    return rooms


def best_that_fit(
    board: Board,
    rows: NDArray[np.int32],
    priorities: NDArray[np.float64],
    most: int,
    now: float,
    until: float,
) -> NDArray[np.int32]:
    """The best of some pages, of each host and group about as many as can be crawled until then.

    Args:
        board: of the pages.
        rows: of the pages.
        priorities: now.
        most: pages at most.
        now: clock seconds.
        until: clock seconds.
    """
    hosts = board.hosts
    kept = best_of_each(priorities, board.pages["host"][rows], _rooms_of_hosts(board, now, until))
    if board.groups.size > 1:
        part = part_of(board.groups)
        soon = np.where(part > 0.0, 1.0 + np.floor(part * (until - now)), 0.0)
        soon[NO_GROUP] = rows.size
        rooms = np.minimum(soon, rows.size).astype(np.int64)
        for groups in (hosts["group"], hosts["named"]):
            of = groups[board.pages["host"][rows[kept]]]
            kept = kept[best_of_each(priorities[kept], of, rooms)]
    if kept.size < most:
        is_other = np.ones(rows.size, np.bool_)
        is_other[kept] = False
        others = _best(priorities, np.flatnonzero(is_other), most - kept.size)
        return rows[np.append(kept, others)]
    return rows[_best(priorities, kept, most)]


def _best(
    priorities: NDArray[np.float64], places: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """The places of the best so many pages."""
    if places.size <= most:
        return places
    first = places.size - most
    return places[np.argpartition(priorities[places], first)[first:]]
