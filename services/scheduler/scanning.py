"""The full scan: every page's priority at the end of a window, and the few that may be picked.

A page's priority never falls while nothing happens to it, so its priority at the end of the window
bounds it all through. What is left out is remembered as bounds: one for all pages that a busier
choice of candidates would have taken (`cutoff`), and one for each host that has more pages than it
can take (`held_back`).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.hosts import capacity, usable_from
from services.scheduler.pages import Rows
from services.scheduler.priority import priority_of
from shared.policy.compiled import compiled

MARGIN: Final = 4.0
"""Candidates for each crawl that the window can take: fewer certify less, more cost more."""

SPARE: Final = 16
"""Candidates beyond that, for small windows."""

_HOST_SPARE: Final = 4


@compiled
def evaluate(
    pages: Rows, used: int, now: float, uniform: bool, priorities: NDArray[np.float64]
) -> None:
    """Priority of every page at one time."""
    for row in range(used):
        priorities[row] = priority_of(pages[row], now, uniform)


@compiled
def _sift_down(
    heap: NDArray[np.int32], start: int, size: int, priorities: NDArray[np.float64]
) -> None:
    """Restore a heap of rows, the least urgent first, from its root."""
    place = 0
    moved = heap[start]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if (
            child + 1 < size
            and priorities[heap[start + child + 1]] < priorities[heap[start + child]]
        ):
            child += 1
        if priorities[heap[start + child]] >= priorities[moved]:
            break
        heap[start + place] = heap[start + child]
        place = child
    heap[start + place] = moved


@compiled
def _sift_up(
    heap: NDArray[np.int32], start: int, place: int, priorities: NDArray[np.float64]
) -> None:
    moved = heap[start + place]
    while place > 0:
        parent = (place - 1) // 2
        if priorities[heap[start + parent]] <= priorities[moved]:
            break
        heap[start + place] = heap[start + parent]
        place = parent
    heap[start + place] = moved


@compiled
def _best_of_each_host(
    pages: Rows, used: int, hosts: Rows, room: NDArray[np.int64], priorities: NDArray[np.float64]
) -> NDArray[np.int32]:
    """The most urgent pages of each host, as many as there is room for; sets `held_back`."""
    starts = np.empty(room.size + 1, np.int64)
    starts[0] = 0
    for host in range(room.size):
        starts[host + 1] = starts[host] + min(room[host], hosts[host].pages)
        hosts[host].held_back = 0.0
    held = np.zeros(room.size, np.int64)
    heap = np.empty(max(starts[-1], 1), np.int32)
    for row in range(used):
        priority = priorities[row]
        if not priority > 0.0:
            continue
        host = pages[row].host
        start = starts[host]
        size = starts[host + 1] - start
        if held[host] < size:
            heap[start + held[host]] = row
            held[host] += 1
            _sift_up(heap, start, held[host] - 1, priorities)
            continue
        refused = priority
        if size > 0 and priority > priorities[heap[start]]:
            refused = priorities[heap[start]]
            heap[start] = row
            _sift_down(heap, start, size, priorities)
        hosts[host].held_back = max(hosts[host].held_back, refused)
    kept = 0
    for host in range(room.size):
        for place in range(held[host]):
            heap[kept] = heap[starts[host] + place]
            kept += 1
    return heap[:kept]


@compiled
def _most_urgent(
    pages: Rows,
    pool: NDArray[np.int32],
    capacities: NDArray[np.float64],
    wanted: float,
    priorities: NDArray[np.float64],
) -> tuple[NDArray[np.int32], float]:
    """The head of the pool, until the crawls that its hosts can take are as many as wanted.

    Returns:
        the rows, the most urgent first, and a bound for those left out.
    """
    urgency = priorities[pool]
    taken = int(min(float(pool.size), 2.0 * wanted))
    while True:
        bound = 0.0
        if 0 < taken < pool.size:
            bound = np.partition(urgency, pool.size - taken)[pool.size - taken]
        head = pool[urgency >= bound]
        order = np.argsort(-priorities[head])
        room = capacities.copy()
        crawls = 0.0
        for place in range(order.size):
            if crawls >= wanted:
                return head[order[:place]], priorities[head[order[place]]]
            host = pages[head[order[place]]].host
            if room[host] >= 1.0:
                room[host] -= 1.0
                crawls += 1.0
        if head.size == pool.size:
            return head[order], 0.0
        if crawls >= wanted:
            return head[order], bound
        taken = min(4 * taken, pool.size)


@compiled
def _sorted_held_back(hosts: Rows, host_count: int, bound: float) -> NDArray[np.int32]:
    """Hosts whose bound is above that of all pages, the highest first."""
    found = np.empty(host_count, np.int32)
    bounds = np.empty(host_count)
    count = 0
    for host in range(host_count):
        if hosts[host].held_back > bound:
            found[count] = host
            bounds[count] = -hosts[host].held_back
            count += 1
    return found[:count][np.argsort(bounds[:count])]


@compiled
def choose_candidates(
    pages: Rows,
    used: int,
    hosts: Rows,
    host_count: int,
    start: float,
    end: float,
    crawls: float,
    priorities: NDArray[np.float64],
) -> tuple[NDArray[np.int32], float, NDArray[np.int32]]:
    """The pages that may be picked in a window.

    Args:
        pages: rows of the shard.
        used: how many of them have ever been used.
        hosts: rows of the hosts; `held_back` is set.
        host_count: how many there are.
        start: of the window, clock seconds.
        end: of the window.
        crawls: that the window can take.
        priorities: of every page at the end of the window.

    Returns:
        rows of the candidates; a bound of the priority of all others whose host is not in the
        third; hosts that hold pages of a higher priority back, the highest first.
    """
    capacities = np.empty(host_count)
    room = np.empty(host_count, np.int64)
    most = MARGIN * crawls + SPARE
    for host in range(host_count):
        able = capacity(hosts[host], start, end)
        capacities[host] = able
        room[host] = int(min(MARGIN * able + _HOST_SPARE, most)) if able >= 1.0 else 0
    pool = _best_of_each_host(pages, used, hosts, room, priorities)
    candidates, cutoff = _most_urgent(pages, pool, capacities, most, priorities)
    return candidates, cutoff, _sorted_held_back(hosts, host_count, cutoff)


@compiled
def best_now(
    pages: Rows, used: int, hosts: Rows, now: float, least: float, uniform: bool
) -> tuple[int, float]:
    """The most urgent page that can be crawled at a moment, by looking at all of them.

    Returns:
        its row, or -1 if there is none of at least the priority `least`; and its priority.
    """
    best, most = -1, 0.0
    for row in range(used):
        priority = priority_of(pages[row], now, uniform)
        if priority > most and priority >= least and usable_from(hosts[pages[row].host]) <= now:
            best, most = row, priority
    return best, most
