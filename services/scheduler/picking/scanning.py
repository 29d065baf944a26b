"""A look at every page: where the calendar begins, and what it is measured against."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import Board, find_due, rows_to_settle, settle_rows
from services.scheduler.picking.priority import HIGHEST_VALUE, Terms, priority_of
from services.scheduler.state.hosts import capacity
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled
from shared.policy.kernels.ranks import nth_greatest
from shared.store.row_threads import ROWS_AT_ONCE, in_slices, threads

_REMEMBERED: Final = 1 << 19
"""Pages that are remembered at least in a look at all of them: some megabytes."""

_HOST_SPARE: Final = 4

_LEAST_SAMPLED: Final = 20
"""Pages of a sample that tell of a guard: fewer say too little."""


@compiled
def evaluate(
    pages: Rows,
    attempts: Rows,
    rows: NDArray[np.int64],
    now: float,
    terms: Terms,
    priorities: NDArray[np.float64],
) -> None:
    """Priority of pages at one time."""
    for place in range(rows.size):
        priorities[place] = priority_of(pages[rows[place]], attempts, now, terms)


def priorities_at(
    pages: Rows, attempts: Rows, rows: NDArray[np.integer[Any]], now: float, terms: Terms
) -> NDArray[np.float64]:
    """The priority of each of some pages at one time, host limits aside."""
    priorities = np.empty(rows.size)
    evaluate(pages, attempts, np.asarray(rows, np.int64), now, terms, priorities)
    return priorities


@compiled
def best_pages(
    pages: Rows, attempts: Rows, used: int, most: int, highest: float, now: float, terms: Terms
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """The pages of the greatest priorities, in no order, by a look at all of them.

    Args:
        pages: rows of the shard.
        attempts: see there.
        used: rows that are looked at.
        most: pages that are wanted; memory is taken for twice as many.
        highest: priority; those above are left out.
        now: clock seconds.
        terms: what priorities go by.

    Returns:
        rows and priorities; fewer than `most` if no others of these have a priority above 0.
    """
    size = min(2 * most, used)
    rows, priorities = np.empty(size, np.int32), np.empty(size)
    count, bound = 0, 0.0
    for row in range(used):
        priority = priority_of(pages[row], attempts, now, terms)
        if not bound < priority <= highest:
            continue
        rows[count], priorities[count] = row, priority
        count += 1
        if count == size and size > most:
            count = keep_best(rows, priorities, most)
            bound = priorities[:count].min()
    if count > most:
        count = keep_best(rows[:count], priorities[:count], most)
    return rows[:count], priorities[:count]


@compiled
def keep_best(rows: NDArray[np.int32], priorities: NDArray[np.float64], most: int) -> int:
    """Move the best of more than `most` pages to the front; how many they are."""
    least = nth_greatest(priorities.copy(), most)
    # Of those that are worth just that, only as many as there is room for.
    equal = most - (priorities > least).sum()
    kept = 0
    for place in range(priorities.size):
        if priorities[place] < least or (priorities[place] == least and equal == 0):
            continue
        if priorities[place] == least:
            equal -= 1
        rows[kept], priorities[kept] = rows[place], priorities[place]
        kept += 1
    return kept


@compiled
def value_of_rank(
    host_numbers: NDArray[np.int32],
    hosts: Rows,
    priorities: NDArray[np.float64],
    rank: int,
    now: float,
    reach: float,
) -> float:
    """The crawl value that about `rank` pages reach, of each host no more than it can take.

    Args:
        host_numbers: the host of each page.
        hosts: rows of the hosts.
        priorities: of the best pages now.
        rank: how many pages.
        now: clock seconds.
        reach: seconds in which hosts are to take them.

    Returns:
        0 where there are not so many.
    """
    wanted = rank
    while wanted < priorities.size:
        bound = nth_greatest(priorities.copy(), wanted)
        room = np.empty(hosts.size)
        for host in range(hosts.size):
            room[host] = capacity(hosts[host], now, now + reach) + _HOST_SPARE
        crawls = 0
        for place in range(priorities.size):
            if priorities[place] >= bound and room[host_numbers[place]] >= 1.0:
                room[host_numbers[place]] -= 1.0
                crawls += 1
        if crawls >= rank:
            return bound if bound <= HIGHEST_VALUE else HIGHEST_VALUE
        wanted *= 4
    return 0.0


def first_guard(board: Board, rank: int, least: int, now: float) -> float:
    """A guard that about so many pages reach that go by value; by a look at all of them.

    Where there are not so many yet, as all were crawled just now, with those of the upper tiers:
    what the others will be worth by the time that it matters, a look now does not tell.

    Args:
        board: over the rows as they are.
        rank: pages.
        least: pages that suffice, with those of the upper tiers.
        now: clock seconds.
    """
    return _guard_among(board, rank, HIGHEST_VALUE, now) or _guard_among(board, least, np.inf, now)


def _guard_among(board: Board, rank: int, highest: float, now: float) -> float:
    """A guard that about so many pages reach, of each host no more than it can take soon; 0: there
    are not so many whose priority is no higher than that."""
    used, reach = int(board.state[0]["used"]), float(board.state[0]["reach"])
    most = max(_REMEMBERED, 4 * rank)
    while True:
        rows, priorities = _best_of_all(board, used, most, highest, now)
        numbers = board.pages["host"][rows]
        guard = value_of_rank(numbers, board.hosts, priorities, rank, now, reach)
        if guard > 0.0 or rows.size < most:
            return float(guard)
        most *= 16


def _best_of_all(
    board: Board, used: int, most: int, highest: float, now: float
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """As `best_pages`, by several threads where pages are many: each looks at a run of the rows."""

    def best_of(part: slice) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        pages, count = board.pages[part], part.stop - part.start
        rows, priorities = best_pages(pages, board.attempts, count, most, highest, now, board.terms)
        return rows + np.int32(part.start), priorities

    at_once = max(-(-used // threads()), ROWS_AT_ONCE)
    if used <= at_once:
        return best_of(slice(0, used))
    found = list(in_slices(best_of, used, at_once))
    rows, priorities = (np.concatenate(parts) for parts in zip(*found, strict=True))
    if rows.size <= most:
        return rows, priorities
    count = keep_best(rows, priorities, most)
    return rows[:count], priorities[:count]


def lower_guard(board: Board, rows: NDArray[np.int64], wanted: int, time: float) -> float:
    """A guard that about so many more pages reach, of hosts that are not at their limits.

    Args:
        board: over the rows as they are.
        rows: of pages by chance, that tell of all.
        wanted: pages.
        time: clock seconds at which they are to reach it.
    """
    state = board.state[0]
    priorities = priorities_at(board.pages, board.attempts, rows, time, board.terms)
    below = (priorities < float(state["guard"])) & (priorities > 0.0)
    free = below & (board.hosts["is_limited"][board.pages["host"][rows]] == 0)
    rank = max(round(wanted * rows.size / int(state["used"])), _LEAST_SAMPLED)
    counted = np.sort(priorities[free if rank < free.sum() else below])[::-1]
    return float(counted[rank]) if rank < counted.size else 0.0


def place_all(board: Board, used: int) -> None:
    """Place all pages anew that are not listed, as the guard has changed: several threads find when
    they are due, and those of which that is known are put in their places meanwhile, in order."""

    def due(part: slice) -> NDArray[np.int32]:
        rows = rows_to_settle(board, part.start, part.stop)
        find_due(board, rows)
        return rows

    for rows in in_slices(due, used):
        settle_rows(board, rows)
