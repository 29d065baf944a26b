"""Which page a slot goes to: the greatest crawl value, found without looking at every page.

For the policies of research, whatever their value; the production policies are picked for by the
scheduler's own calendar (`virtual_shard`), which knows the exact value alone, and picks the same.

Values rise with time unless something happens to the page, so a page's value at the end of a
stretch of slots bounds it throughout. Two nested stretches keep the work small: at the start of a
long one all pages are bounded and the best listed; at the start of a short one the listed are
bounded again and the best shortlisted; a slot looks at the shortlist, where only pages whose bound
exceeds the best value so far are evaluated. *Certificate*: if the best value reaches the greatest
bound left outside, it is the greatest of all; if not, the slot looks at every page. So the choice
always equals the full scan's.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.replay.columns import TOKENS_DEPTH, Hosts
from services.replay.values import unit_value
from shared.policy.compiled import compiled
from shared.policy.kernels.ranks import nth_greatest

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Pages = NDArray[Any]
"""Records of type `columns.PAGE`."""

SHORT_STRETCH = 24
"""Slots; a long stretch has the geometric mean of it and of the number of pages."""

SPARE = 20
"""Pages listed beyond three for each slot of a stretch."""

FIRST_COPY = 1e100
"""Value of a page without a copy, per unit of importance: before all others."""


class Rules(NamedTuple):
    """What a policy of this family is; all of one replay."""

    value: int
    """Which value: `values`."""
    terms: float
    """Of the approximations."""
    learner: int
    """Where parameters come from: `columns`."""
    uses_signals: bool
    signal_delay_days: float
    """Signals that come so soon after a crawl are not counted [N appendix C]."""


class Lists(NamedTuple):
    """The two nested lists of candidates; columns have one row a page."""

    bounds: Floats
    """No less than the page's value until the short stretch ends."""
    far: Floats
    """The same until the long stretch ends; infinite once something happened to the page."""
    long: Integers
    short: Integers
    is_long: NDArray[np.bool_]
    is_short: NDArray[np.bool_]
    sizes: Integers
    """Of the long list, and of the short one; slots that needed a full scan."""
    outside: Floats
    """The greatest bound outside the long list, and outside either."""
    ends: Floats
    """Days at which the long stretch and the short one end; the least value chosen in the long
    one, infinite at its start."""


def new_lists(pages: int) -> Lists:
    """Empty lists, with room for every page."""
    return Lists(
        np.zeros(pages),
        np.zeros(pages),
        np.zeros(pages, np.int64),
        np.zeros(pages, np.int64),
        np.zeros(pages, np.bool_),
        np.zeros(pages, np.bool_),
        np.zeros(3, np.int64),
        np.full(2, -np.inf),
        np.zeros(3),
    )


@compiled
def value_of(page: Any, rules: Rules, now: float) -> float:
    """The value of crawling a page (a record) now; 0 before it is known."""
    if page.born > now:
        return 0.0
    if not page.held:
        return float(FIRST_COPY * (1.0 + page.importance))
    if not page.importance > 0.0:
        return 0.0
    unit = unit_value(
        rules.value,
        rules.terms,
        page.rate,
        page.kappa,
        page.gamma,
        now - page.last_crawl,
        page.signals,
    )
    return float(page.importance * unit)


@compiled
def free_tokens(limit: Floats, tokens: Floats, filled: Floats, host: int, now: float) -> float:
    """Crawls that a host allows now."""
    if limit[host] == np.inf:
        return np.inf
    saved = tokens[host] + (now - filled[host]) * limit[host]
    return float(min(saved, TOKENS_DEPTH))


@compiled
def take_token(hosts: Hosts, host: int, now: float) -> None:
    """Count a crawl of a host."""
    if hosts.limit[host] < np.inf:
        free = free_tokens(hosts.limit, hosts.tokens, hosts.filled, host, now)
        hosts.tokens[host] = free - 1.0
        hosts.filled[host] = now


@compiled
def listed(
    pages: Pages,
    limit: Floats,
    bounds: Floats,
    among: Integers,
    wanted: int,
    days: float,
    out: Integers,
) -> tuple[int, float]:
    """Write the `wanted` pages of the greatest bounds to `out`; how many, and the greatest left.

    A limited host takes no more places than it could be crawled in `days`, thrice, with some to
    spare: the rest of its pages cannot come first before the stretch ends, and do not count as
    left outside.
    """
    limited = False
    for host in range(limit.size):
        limited = limited or limit[host] < np.inf
    size, outside = 0, -np.inf
    if not limited:
        level = -np.inf
        if among.size > wanted:
            level = nth_greatest(bounds[among], wanted)
        for page in among:
            if bounds[page] >= level:
                out[size] = page
                size += 1
            else:
                outside = max(outside, bounds[page])
        return size, outside
    places = np.empty(limit.size)
    for host in range(places.size):
        places[host] = 3.0 * (TOKENS_DEPTH + days * limit[host]) + SPARE
    for index in np.argsort(-bounds[among]):
        page = among[index]
        host = pages[page].host
        if places[host] < 1.0:
            continue
        if size == wanted:
            return size, bounds[page]
        places[host] -= 1.0
        out[size] = page
        size += 1
    return size, -np.inf


@compiled
def _make_long_list(
    pages: Pages, limit: Floats, rules: Rules, lists: Lists, wanted: int, now: float, end: float
) -> None:
    far, is_long = lists.far, lists.is_long
    for row in range(far.size):
        far[row] = value_of(pages[row], rules, end)
        is_long[row] = False
    size, lists.outside[0] = listed(
        pages, limit, far, np.arange(far.size), wanted, end - now, lists.long
    )
    lists.sizes[0] = size
    for row in lists.long[:size]:
        is_long[row] = True


@compiled
def _make_short_list(
    pages: Pages, limit: Floats, rules: Rules, lists: Lists, level: float, now: float, end: float
) -> None:
    """`level`: below the values of late crawls; pages that cannot reach it stay bounded far."""
    bounds, far, is_short = lists.bounds, lists.far, lists.is_short
    among = lists.long[: lists.sizes[0]]
    for row in lists.short[: lists.sizes[1]]:
        is_short[row] = False
    for row in among:
        bounds[row] = far[row]
        if far[row] >= level:
            bounds[row] = value_of(pages[row], rules, end)
    size, outside = listed(
        pages, limit, bounds, among, 3 * SHORT_STRETCH + SPARE, end - now, lists.short
    )
    lists.outside[1] = max(outside, lists.outside[0])
    lists.sizes[1] = size
    for row in lists.short[:size]:
        is_short[row] = True


@compiled
def renew_lists(
    pages: Pages, limit: Floats, rules: Rules, lists: Lists, slot_days: Floats, done: int
) -> None:
    """Before slot number `done` of a stretch without refits, `slot_days`: list what its slots may
    choose."""
    long_stretch = SHORT_STRETCH * int(1.0 + 0.6 * math.sqrt(pages.size / SHORT_STRETCH))
    now, last = slot_days[done], slot_days.size - 1
    if done % long_stretch == 0:
        lists.ends[0] = slot_days[min(done + long_stretch - 1, last)]
        wanted = 3 * long_stretch + SPARE
        _make_long_list(pages, limit, rules, lists, wanted, now, lists.ends[0])
        lists.ends[2] = np.inf
    if done % SHORT_STRETCH == 0:
        lists.ends[1] = slot_days[min(done + SHORT_STRETCH - 1, last)]
        # Half the least value of the long stretch: bounds left far then seldom matter.
        level = 0.5 * lists.ends[2] if lists.ends[2] < np.inf else -np.inf
        _make_short_list(pages, limit, rules, lists, level, now, lists.ends[1])


@compiled
def admit(page: Any, row: int, rules: Rules, lists: Lists) -> None:
    """Something happened to a page: bound it anew, in both lists."""
    lists.bounds[row] = value_of(page, rules, lists.ends[1])
    lists.far[row] = np.inf
    if not lists.is_long[row]:
        lists.is_long[row] = True
        lists.long[lists.sizes[0]] = row
        lists.sizes[0] += 1
    if not lists.is_short[row]:
        lists.is_short[row] = True
        lists.short[lists.sizes[1]] = row
        lists.sizes[1] += 1


@compiled
def _best_of(
    pages: Pages, hosts: Hosts, rules: Rules, rows: Integers, bounds: Floats, now: float
) -> tuple[int, float]:
    """(row, value) of the greatest value among `rows` whose hosts are free; −1: there is none."""
    best, choice = -1.0, -1
    limit, tokens, filled = hosts.limit, hosts.tokens, hosts.filled
    for row in rows:
        if bounds[row] <= best:
            continue
        page = pages[row]
        if free_tokens(limit, tokens, filled, page.host, now) < 1.0:
            continue
        value = value_of(page, rules, now)
        if value > best:
            best, choice = value, row
    return choice, best


@compiled
def select(pages: Pages, hosts: Hosts, rules: Rules, lists: Lists, now: float) -> int:
    """The page of the greatest value now, whose host is free; −1: there is none."""
    page, best = _best_of(pages, hosts, rules, lists.short[: lists.sizes[1]], lists.bounds, now)
    if best < lists.outside[1]:
        lists.sizes[2] += 1
        unbounded = np.full(pages.size, np.inf)
        page, best = _best_of(pages, hosts, rules, np.arange(pages.size), unbounded, now)
    lists.ends[2] = min(lists.ends[2], best)
    return page
