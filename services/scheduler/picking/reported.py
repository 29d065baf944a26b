"""Pages that tell what a shard has to crawl soon, for its report: at a bounded cost."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import NO_ITEM, PENNED, Board
from services.scheduler.picking.board_rows import LEFT
from services.scheduler.picking.scanning import priorities_at
from services.scheduler.picking.space import Space
from services.scheduler.picking.urgent_heaps import rows_in
from services.scheduler.state.hosts import capacity
from services.scheduler.state.selector import Weighed
from shared.policy.compiled import compiled
from shared.policy.kernels.ranks import nth_greatest


def weigh_some(
    board: Board, space: Space, random: np.random.Generator, now: float, horizon: float, most: int
) -> Weighed:
    """Pages and their priorities now, host limits aside.

    Of those that are not in the calendar all are among them, of each host that waits as many as it
    can take soon, unless there are too many; and of the others a sample.

    Args:
        board: of the shard; without pages, where it was not made yet.
        space: the shard.
        random: draws the sample.
        now: clock seconds.
        horizon: clock seconds from now in which pages are to be crawled.
        most: so many others at most, and about so many of hosts that wait.
    """
    used = space.used
    if used <= most:
        rows = np.arange(used)
        return _weighed(board, space, now, rows, np.ones(used), np.ones(used))
    drawn = random.integers(0, used, most)
    state = board.state[0]
    if not board.pages.size or state["listed"] + state["urgent"] > most:
        return _weighed(board, space, now, drawn, np.full(most, used / most), np.ones(most))
    free = _free_rows(board)
    penned, stride = _of_pens(board, now, horizon, most, int(random.integers(0, 1 << 30)))
    others = drawn[space.pages["bucket"][drawn] < PENNED]
    rows = np.concatenate([free, penned, others])
    pages_each, hosts_each = np.ones(rows.size), np.ones(rows.size)
    pages_each[free.size + penned.size :] = used / most
    hosts_each[free.size : free.size + penned.size] = stride
    return _weighed(board, space, now, rows, pages_each, hosts_each)


def _weighed(
    board: Board,
    space: Space,
    now: float,
    rows: NDArray[np.int64],
    pages_each: NDArray[np.float64],
    hosts_each: NDArray[np.float64],
) -> Weighed:
    priorities = priorities_at(space.pages, space.attempts.rows, rows, now, board.terms)
    return Weighed(rows, priorities, pages_each, hosts_each)


def _free_rows(board: Board) -> NDArray[np.int64]:
    """Rows of the pages that are looked at for every slot."""
    state: Any = board.state[0]
    urgent = rows_in(board.urgent, state, in_turns=board.terms.in_turns)
    looked_at = np.concatenate([board.listed["row"][: state["listed"]], urgent])
    looked_at = looked_at[looked_at != LEFT]
    return np.unique(looked_at[board.pages["bucket"][looked_at] > PENNED]).astype(np.int64)


@compiled
def _of_pens(
    board: Board, now: float, horizon: float, most: int, first: int
) -> tuple[NDArray[np.int64], int]:
    """Rows of the best pages that each host with a pen can take soon; of every how many-th host."""
    hosts = board.hosts
    rooms = np.zeros(hosts.size, np.int64)
    wanted = 0
    for number in range(hosts.size):
        if hosts[number].penned > 0:
            room = capacity(hosts[number], now, now + horizon)
            rooms[number] = int(min(room, float(hosts[number].penned)))
            wanted += rooms[number]
    stride = max((wanted + most - 1) // most, 1)
    rows = np.empty(wanted, np.int64)
    count = 0
    for number in range(first % stride, hosts.size, stride):
        if rooms[number] > 0:
            count = _take_best(board, number, rooms[number], rows, count)
    return rows[:count], stride


@compiled
def _take_best(board: Board, number: int, most: int, rows: NDArray[np.int64], count: int) -> int:
    """Note the pages of a pen that were worth most when they were last looked at."""
    host = board.hosts[number]
    worth = np.empty(host.penned)
    item = host.pen
    for place in range(worth.size):
        worth[place] = board.pen_priorities[item]
        item = board.pen_next[item]
    least = nth_greatest(worth, most)
    left = most
    item = host.pen
    while item != NO_ITEM and left > 0:
        if board.pen_priorities[item] >= least:
            rows[count] = board.pen_rows[item]
            count += 1
            left -= 1
        item = board.pen_next[item]
    return count
