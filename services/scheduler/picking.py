"""Filling slots, one after the other, each with the most urgent page at its moment.

Candidates wait in a heap by bounds of their priorities: first those that hold until the end of the
scan's window, then, for those that reach the top, closer ones. A slot takes candidates off the top
until none that is left can beat the best one found. Candidates of a host without a token are put
aside until it has one, so a limited host never holds up the others.
"""

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.hosts import note_value, take_token, usable_from
from services.scheduler.pages import Rows
from services.scheduler.priority import BY_VALUE, crawl_value_of, priority_of, tier_of
from shared.policy.compiled import compiled

TOLERANCE: Final = 1e-6
"""A page is the most urgent if none is more urgent by more than this part."""

PICKED: Final = -1.0
"""Ceiling of a candidate that has been picked."""

PICK: Final = np.dtype(
    [
        ("row", np.int64),  # -1: nothing to crawl
        ("time", np.float64),
        ("priority", np.float64),
        ("value", np.float64),
        ("tier", np.int64),
    ],
    align=True,
)


@compiled
def _push(
    keys: NDArray[np.float64], items: NDArray[np.int32], size: int, key: float, item: int
) -> int:
    """Add to a heap, the greatest key first; the new size."""
    place = size
    while place > 0:
        parent = (place - 1) // 2
        if keys[parent] >= key:
            break
        keys[place] = keys[parent]
        items[place] = items[parent]
        place = parent
    keys[place] = key
    items[place] = item
    return size + 1


@compiled
def _pop(keys: NDArray[np.float64], items: NDArray[np.int32], size: int) -> int:
    """Drop the top of a heap; the new size."""
    size -= 1
    key, item = keys[size], items[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if keys[child] <= key:
            break
        keys[place] = keys[child]
        items[place] = items[child]
        place = child
    keys[place] = key
    items[place] = item
    return size


@compiled
def commit(
    pages: Rows, hosts: Rows, pick: Any, row: int, now: float, timeout: float, uniform: bool
) -> None:
    """Send a page on its way: in flight, its host's token taken, the pick written down."""
    page = pages[row]
    host = hosts[page.host]
    tier = tier_of(page, now)
    value = crawl_value_of(page, now, uniform)
    pick.row = row
    pick.time = now
    pick.priority = priority_of(page, now, uniform)
    pick.value = value
    pick.tier = tier
    take_token(host, now)
    if tier == BY_VALUE:
        note_value(host, value)
    page.deadline = now + timeout
    page.requested_us = np.int64(np.floor(now * 1e6 + 0.5))


@compiled
def _is_certain(
    hosts: Rows, holding: NDArray[np.int32], cutoff: float, floor: float, now: float
) -> bool:
    """Whether no page that is not a candidate can be more urgent than `floor`."""
    most = floor * (1.0 + TOLERANCE)
    if cutoff > most:
        return False
    for host in holding:
        if hosts[host].held_back <= most:
            break
        if usable_from(hosts[host]) <= now:
            return False
    return True


class Queue(NamedTuple):
    """Candidates on their way to the slots of one call; all arrays, so that kernels can share it.

    A candidate is an item: its place in the array of candidates.
    """

    bounds: NDArray[np.float64]
    """Of each item's priority until the last slot, or longer."""
    is_close: NDArray[np.bool_]
    """Whether an item's bound was taken at the last slot."""
    waiting_keys: NDArray[np.float64]
    waiting: NDArray[np.int32]
    """Heap of items, the greatest bound first."""
    parked_keys: NDArray[np.float64]
    parked: NDArray[np.int32]
    """Heap of hosts without a token, by minus the time of their next."""
    first_aside: NDArray[np.int32]
    """By host: an item that waits for it, or -1."""
    next_aside: NDArray[np.int32]
    """By item: the next one that waits for the same host, or -1."""
    beaten: NDArray[np.int32]
    """Items that were looked at for a slot and did not get it."""
    sizes: NDArray[np.int64]
    """Of the heaps: waiting, parked."""


@compiled
def _make_queue(ceilings: NDArray[np.float64], count: int, host_count: int, least: float) -> Queue:
    queue = Queue(
        ceilings[:count].copy(),
        np.zeros(count, np.bool_),
        np.empty(count + 1),
        np.empty(count + 1, np.int32),
        np.empty(host_count + 1),
        np.empty(host_count + 1, np.int32),
        np.full(host_count, -1, np.int32),
        np.empty(count, np.int32),
        np.empty(count, np.int32),
        np.zeros(2, np.int64),
    )
    for item in range(count):
        _wait(queue, item, least)
    return queue


@compiled
def _wait(queue: Queue, item: int, least: float) -> None:
    """Let an item wait for the next slots, if they may want it."""
    bound = queue.bounds[item]
    if bound > 0.0 and bound >= least:
        queue.sizes[0] = _push(queue.waiting_keys, queue.waiting, queue.sizes[0], bound, item)


@compiled
def _park(queue: Queue, item: int, host: int, ready: float) -> None:
    """Put an item aside until its host has a token."""
    if queue.first_aside[host] < 0:
        queue.sizes[1] = _push(queue.parked_keys, queue.parked, queue.sizes[1], -ready, host)
    queue.next_aside[item] = queue.first_aside[host]
    queue.first_aside[host] = item


@compiled
def _release_hosts(queue: Queue, now: float, least: float) -> None:
    """Bring back the items of hosts that have a token again."""
    while queue.sizes[1] > 0 and -queue.parked_keys[0] <= now:
        host = queue.parked[0]
        queue.sizes[1] = _pop(queue.parked_keys, queue.parked, queue.sizes[1])
        item = queue.first_aside[host]
        queue.first_aside[host] = -1
        while item >= 0:
            following = queue.next_aside[item]
            _wait(queue, item, least)
            item = following


@compiled
def _take_best(
    queue: Queue,
    pages: Rows,
    hosts: Rows,
    candidates: NDArray[np.int32],
    now: float,
    end: float,
    least: float,
    uniform: bool,
) -> tuple[int, float]:
    """Take the most urgent item that can be crawled now off the queue: (item or -1, priority)."""
    best, most, losers = -1, 0.0, 0
    while queue.sizes[0] > 0 and queue.waiting_keys[0] > most:
        item = queue.waiting[0]
        queue.sizes[0] = _pop(queue.waiting_keys, queue.waiting, queue.sizes[0])
        page = pages[candidates[item]]
        ready = usable_from(hosts[page.host])
        if ready > now:
            _park(queue, item, page.host, ready)
            continue
        if not queue.is_close[item]:
            queue.is_close[item] = True
            queue.bounds[item] = priority_of(page, end, uniform)
            _wait(queue, item, least)
            continue
        priority = priority_of(page, now, uniform)
        loser = item
        if priority > most:
            loser, best, most = best, item, priority
        if loser >= 0:
            queue.beaten[losers] = loser
            losers += 1
    for place in range(losers):
        _wait(queue, queue.beaten[place], least)
    return best, most


@compiled
def fill_slots(
    pages: Rows,
    hosts: Rows,
    host_count: int,
    candidates: NDArray[np.int32],
    ceilings: NDArray[np.float64],
    count: int,
    holding: NDArray[np.int32],
    cutoff: float,
    slots: NDArray[np.float64],
    timeout: float,
    least: float,
    uniform: bool,
    picks: Rows,
) -> int:
    """Pick a page for each slot.

    Args:
        pages: rows of the shard; picked ones go in flight.
        hosts: rows of the hosts; their tokens are taken.
        host_count: how many there are.
        candidates: rows that may be picked.
        ceilings: their priorities at the last slot or later; `PICKED` once they are.
        count: how many candidates there are.
        holding: hosts that hold pages back, the most urgent first.
        cutoff: bound of the priority of all pages that are not candidates.
        slots: times, rising, clock seconds.
        timeout: clock seconds until a request's deadline.
        least: priority below which a slot is rather left empty.
        uniform: by age instead of crawl value.
        picks: one `PICK` a slot, to be written.

    Returns:
        how many slots were settled; fewer than there are where the candidates do not suffice to
        know what is the most urgent.
    """
    queue = _make_queue(ceilings, count, host_count, least)
    end = slots[slots.size - 1]
    for slot in range(slots.size):
        now = slots[slot]
        _release_hosts(queue, now, least)
        best, most = _take_best(queue, pages, hosts, candidates, now, end, least, uniform)
        if not _is_certain(hosts, holding, cutoff, max(most, least), now):
            return slot
        if best >= 0 and most >= least:
            commit(pages, hosts, picks[slot], candidates[best], now, timeout, uniform)
            ceilings[best] = PICKED
        else:
            picks[slot].row = -1
            picks[slot].time = now
            if best >= 0:
                _wait(queue, best, least)
    return slots.size
