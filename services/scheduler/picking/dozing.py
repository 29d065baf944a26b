"""Listed pages that doze: nobody looks at them for a while, as they are worth far less than what is
picked. They come first in the list."""

import math
from typing import Any, Final

from services.scheduler.picking.board import Board
from services.scheduler.picking.board_rows import LEFT
from services.scheduler.picking.work_share import next_turn
from services.scheduler.state.rows import Rows
from shared.policy.compiled import compiled
from shared.store.prefetch import AHEAD, prefetch

_DOZE: Final = 0.8
"""Wall seconds after which all that doze wake, and those doze that will not be looked at before the
next time. Shards of a process wake theirs one after the other."""

_TURNS: Final = 16
"""Looks in which the hosts of all pages that are not looked at are asked whether they are at their
limits: they lie far apart in memory, and all of them at once would cost as much as all else."""


@compiled
def let_wake(state: Any, now: float, skip_below: float, dozes_below: float) -> None:
    """Let no page doze any more if it is time, or if pages that doze are to be looked at.

    Args:
        state: of the board.
        now: see `weigh_listed`.
        skip_below: see there.
        dozes_below: those may doze from now on that are worth less; 0: none.
    """
    if dozes_below > 0.0 and now < state.wakes_at and skip_below >= state.dozes_below:
        return
    state.dozing, state.dozes_below = 0, dozes_below
    state.wakes_at = next_turn(now, _DOZE * state.reach, state.phase)


@compiled
def wake_limited(board: Board) -> tuple[int, int]:
    """Wake those pages that doze whose hosts are found at their limits, of the next part of the
    list (`_TURNS`).

    Returns:
        places of that part, from one to before another: the hosts of the others there are to be
        asked as well.
    """
    hosts, listed, state = board.hosts, board.listed, board.state[0]
    end = min(state.asked_from, state.listed)
    if end == 0:
        end = state.listed
    # From the end on: pages move up as others leave, and none is to be passed over.
    place = first = state.asked_from = max(end - state.listed // _TURNS - 1, 0)
    while place < min(end, state.dozing):
        if place + AHEAD < state.dozing:
            prefetch(hosts, listed[place + AHEAD].host)
        entry = listed[place]
        if entry.row != LEFT and hosts[entry.host].is_limited:
            entry.bound, entry.until = math.inf, -math.inf
            state.dozing -= 1
            _swap(listed, place, state.dozing)
        else:
            place += 1
    return first, end


@compiled
def let_doze(listed: Rows, state: Any, place: int, expire: bool) -> None:
    """Let the entry at a place doze, if nothing is to be asked of it until they wake.

    Args:
        listed: entries.
        state: of the board.
        place: of the entry, which has a bound; all before it that do not doze were seen to.
        expire: whether bounds count but for a time, as others than new pages are looked at.
    """
    entry = listed[place]
    if not entry.bound < state.dozes_below or (expire and entry.until < state.wakes_at):
        return
    if state.dozing < place:
        _swap(listed, place, state.dozing)
    state.dozing += 1


@compiled
def _swap(listed: Rows, place: int, with_place: int) -> None:
    entry, other = listed[place], listed[with_place]
    entry.row, other.row = other.row, entry.row
    entry.host, other.host = other.host, entry.host
    entry.listing, other.listing = other.listing, entry.listing
    entry.is_exact, other.is_exact = other.is_exact, entry.is_exact
    entry.priority, other.priority = other.priority, entry.priority
    entry.bound, other.bound = other.bound, entry.bound
    entry.until, other.until = other.until, entry.until
