"""Lines: hosts that have ripe pages, and wait for the limits of the same groups.

A line is offered as one: by its top host, whose pages are worth no more than its bound. Only when
no other page is worth more than that is the host called out of the line, and its pages are looked
at; then the next one is on top. So for a slot of a group few of its hosts are looked at, as many
as might have the best page, however many wait.

The bound of a host is what its pages would be worth some time later: till then it holds, as values
only rise with time, and whatever comes into the pen, or happens to a page in it, raises it. Then it
is found anew. That of a host whose turn is far away holds for long, that of one which is near it
for about a slot: so hardly any host is called out in vain.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.board import NO_ITEM, Board, park
from services.scheduler.picking.board_rows import wide
from services.scheduler.picking.heap import push
from services.scheduler.picking.line_heaps import IN_LINE, enter, leave
from services.scheduler.picking.pen_quotas import just_above, most_outside
from services.scheduler.picking.priority import priority_of
from services.scheduler.state.hosts import open_from, usable_from
from services.scheduler.state.rows import NEVER, NO_GROUP, NO_HOST, NO_LINE
from shared.policy.compiled import compiled

AT_ONCE: Final = -math.inf
"""A line that waits until then is offered, or waits for its groups, when slots are filled next."""

_PART_OF_WAY: Final = 0.9
"""A bound holds until a page of the host has come so far on its way to what was crawled last of the
line: so it is found anew few times only before it is the host's turn ..."""

_SHORTEST: Final = 0.1
_LONGEST: Final = 600.0
"""... but for an interval between slots at least, and so many wall seconds, and so many at most."""


@compiled
def opens_at(board: Board, number: int, now: float) -> float:
    """From when on a host of a line may be crawled, as far as its groups are concerned; `now` at
    the earliest."""
    line = board.lines[number]
    opens = now
    if line.group != NO_GROUP:
        opens = max(opens, open_from(board.groups[line.group], now))
    if line.named != NO_GROUP:
        opens = max(opens, open_from(board.groups[line.named], now))
    return opens


@compiled
def park_line(board: Board, number: int, ready: float) -> None:
    """Let a line wait until a time; an earlier entry of it, and an offer, count no more."""
    line = board.lines[number]
    line.ready_at, line.is_parked, line.is_offered = ready, 1, 0
    if ready < math.inf:
        state = board.state[0]
        state.parked = push(board.parked_keys, board.parked, state.parked, -ready, -2 - number)


@compiled
def interval_of(board: Board, number: int) -> float:
    """Seconds between two slots of a line, about; infinite: it has none."""
    line = board.lines[number]
    rate = math.inf
    for of in (line.group, line.named):
        if of != NO_GROUP:
            group = board.groups[of]
            rate = min(rate, group.rate * (group.high - group.low))
    return 1.0 / rate if rate > 0.0 else math.inf


@compiled
def _way(board: Board, number: int, now: float) -> float:
    """Seconds until a page of a host may be worth what was crawled last of its line, about.

    A value of freshness grows with time squared at most, so that of a page which was crawled t ago
    and is worth V needs t·(√(W/V) − 1) to come to W; under other objectives that is about. What
    the pages are worth is what was found for about now.
    """
    host = board.hosts[number]
    level, item, way = board.lines[host.line].level, host.pen, math.inf
    if just_above(most_outside(host)) >= level:
        way = 0.0
    while item != NO_ITEM:
        worth = board.pen_priorities[item]
        if worth >= level:
            way = 0.0
        elif worth > 0.0:
            passed = now - board.pages[board.pen_rows[item]].last_crawled_at
            way = min(way, passed * (math.sqrt(level / worth) - 1.0))
        item = board.pen_next[item]
    return way


@compiled
def _find_worth(board: Board, number: int, time: float) -> float:
    """What the pages of a host are worth at most at a time, in its pen and outside."""
    host = board.hosts[number]
    worth = just_above(most_outside(host))
    item = host.pen
    while item != NO_ITEM:
        page = board.pages[board.pen_rows[item]]
        priority = 0.0
        if page.host == number:
            priority = priority_of(page, board.attempts, time, board.terms)
        board.pen_priorities[item] = priority
        worth = max(worth, priority)
        item = board.pen_next[item]
    # They are not those of now: for that they are to be found anew.
    host.weighed_at = -math.inf
    return float(worth)


@compiled
def _find_bound(board: Board, number: int, now: float) -> None:
    """Find what the pages of a host are worth at most for some time."""
    host, state = board.hosts[number], board.state[0]
    longest = _LONGEST * state.reach
    shortest = min(max(interval_of(board, wide(host.line)), _SHORTEST * state.reach), longest)
    span = min(max(_PART_OF_WAY * _way(board, number, now), shortest), longest)
    # One that expires later stays in the heap beside it, for which there must be room.
    others = 3 * (board.hosts.size + board.lines.size) + 1
    is_sooner = now + span < host.expires_at and state.parked + others < board.parked.size
    is_new = host.expires_at == NEVER or is_sooner
    until = now + span if is_new else host.expires_at
    host.bound = _find_worth(board, number, until)
    if is_new:
        host.expires_at = until
        state.parked = push(board.parked_keys, board.parked, state.parked, -until, number)


@compiled
def join_line(board: Board, number: int, now: float) -> None:
    """A host waits for its groups."""
    _find_bound(board, number, now)
    of = wide(board.hosts[number].line)
    enter(board.hosts, board.lines, number, of)
    line = board.lines[of]
    if line.is_offered and board.hosts[line.first].bound > line.offer:
        # Another host is on top, and worth more than what was offered.
        park_line(board, of, AT_ONCE)
    elif not (line.is_offered or line.is_parked):
        park_line(board, of, opens_at(board, of, now))


@compiled
def let_wait(board: Board, number: int, now: float) -> None:
    """A host waits for its next token, or, where it has one, for its groups."""
    usable = usable_from(board.hosts[number])
    if usable > now or is_line_open(board, number, now):
        park(board, number, usable)
    else:
        join_line(board, number, now)


@compiled
def heed_page(board: Board, number: int, row: int, now: float) -> None:
    """A page has come into the pen of a host."""
    host = board.hosts[number]
    if host.is_parked == IN_LINE:
        later = priority_of(board.pages[row], board.attempts, host.expires_at, board.terms)
        if later > host.bound:
            leave(board.hosts, board.lines, number)
            join_line(board, number, now)


@compiled
def offer_line(board: Board, number: int) -> bool:
    """Let a line take part with the bound of its top host, `offer`; whether anybody is in it."""
    line = board.lines[number]
    line.is_parked, line.is_offered = 0, 0
    if line.first == NO_HOST:
        return False
    line.is_offered, line.offer = 1, board.hosts[line.first].bound
    return True


@compiled
def call_out(board: Board, number: int, offer: float, now: float) -> int:
    """The host on top of a line, which was offered for so much, leaves it; `NO_HOST`: the offer
    does not count, or the line has to wait."""
    line = board.lines[number]
    if not line.is_offered or line.offer != offer:
        return NO_HOST
    if line.first == NO_HOST:
        line.is_offered = 0
        return NO_HOST
    opens = opens_at(board, number, now)
    if opens > now:
        park_line(board, number, opens)
        return NO_HOST
    first = wide(line.first)
    leave(board.hosts, board.lines, first)
    return first


@compiled
def is_line_open(board: Board, number: int, now: float) -> bool:
    """Whether a host's groups, if it has any, let it be crawled now."""
    line = wide(board.hosts[number].line)
    return bool(line == NO_LINE or opens_at(board, line, now) <= now)


@compiled
def touch_parked(board: Board, number: int) -> None:
    """The limits of a host that waits are others: it waits for its own first."""
    if board.hosts[number].is_parked == IN_LINE:
        leave(board.hosts, board.lines, number)
    park(board, number, usable_from(board.hosts[number]))


@compiled
def touch_all_parked(board: Board, numbers: NDArray[np.int64]) -> None:
    """The limits of hosts are others; those that do not wait have to heed them when they do."""
    for number in numbers:
        if board.hosts[number].is_parked:
            touch_parked(board, number)


@compiled
def touch_lines(board: Board) -> None:
    """The limits of groups are others, but no host has come to another line."""
    for number in range(board.lines.size):
        if board.lines[number].is_parked:
            park_line(board, number, AT_ONCE)


@compiled
def empty_lines(board: Board) -> None:
    """There will be other lines; who was in one waits until it is touched."""
    for number in range(board.hosts.size):
        host = board.hosts[number]
        if host.is_parked == IN_LINE:
            host.is_parked, host.ready_at = 1, math.inf
    clear_lines(board)


@compiled
def clear_lines(board: Board) -> None:
    """Nobody is in any line."""
    for number in range(board.lines.size):
        line = board.lines[number]
        line.first, line.is_parked, line.is_offered = NO_HOST, 0, 0


@compiled
def drop_stale(board: Board) -> None:
    """Take what counts no more out of the heap of those that wait."""
    state, keys, items = board.state[0], board.parked_keys, board.parked
    count = state.parked
    state.parked = 0
    for place in range(count):
        key, item = keys[place], int(items[place])
        if item <= -2:
            line = board.lines[-2 - item]
            counts = line.is_parked != 0 and line.ready_at == -key
        else:
            host = board.hosts[item]
            counts = (host.is_parked == 1 and host.ready_at == -key) or host.expires_at == -key
        if counts:
            state.parked = push(keys, items, state.parked, key, item)
