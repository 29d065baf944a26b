"""Signals of a page that wait for its next crawl, and when the last one of each source came."""

from typing import Any

from shared.policy.compiled import compiled
from shared.rules.page_events import is_after_crawl
from shared.store.history import SOURCES, Rings
from shared.store.page_status import NEVER
from shared.store.source_times import (
    NO_ENTRY,
    Ages,
    clear_entry,
    end_of_second,
    set_time_of_source,
    time_of_source,
)


@compiled
def take_late(page: Any, rings: Rings, ages: Ages, row: int, time: float) -> None:
    """Take from a page's signals those that came after a crawl, but before the news of it."""
    pending = rings.pending[row]
    for slot in range(SOURCES):
        last = last_of_source(page, rings, ages, row, slot)
        if pending[slot] > 0 and is_after_crawl(last, time, 0.0):
            pending[slot] -= 1
            page.signals -= 1


@compiled
def late_slots(
    page: Any, rings: Rings, ages: Ages, row: int, time: float, signal_delay_seconds: float
) -> int:
    """Which sources' last signals count for the interval after a crawl, as bits; of each source
    only the last one is known."""
    kept = 0
    for slot in range(SOURCES):
        last = last_of_source(page, rings, ages, row, slot)
        if is_after_crawl(last, time, signal_delay_seconds):
            kept |= 1 << slot
    return kept


@compiled
def keep_waiting(page: Any, rings: Rings, row: int, kept: int) -> None:
    """One signal of each of these sources waits on, and no other."""
    pending = rings.pending[row]
    page.signals = 0
    for slot in range(SOURCES):
        pending[slot] = (kept >> slot) & 1
        page.signals += pending[slot]


@compiled
def last_of_source(page: Any, rings: Rings, ages: Ages, row: int, slot: int) -> float:
    """When a source sent its last signal of a page."""
    if page.several != NO_ENTRY:
        return time_of_source(ages, page.several, end_of_second(page.last_signal_at), slot)
    last: float = page.last_signal_at
    return last if rings.last_source[row] == slot else NEVER


@compiled
def note_signal(
    page: Any, rings: Rings, ages: Ages, row: int, slot: int, time: float, free_entry: int
) -> bool:
    """Note when a source sent its last signal; whether that took the free entry."""
    latest = page.last_signal_at
    is_of_another: bool = rings.last_source[row] != slot
    is_second = page.several == NO_ENTRY and latest > NEVER and is_of_another
    if is_second:
        page.several = free_entry
        clear_entry(ages, free_entry)
        before = rings.last_source[row]
        set_time_of_source(ages, free_entry, end_of_second(latest), before, latest)
    if page.several != NO_ENTRY:
        set_time_of_source(ages, page.several, end_of_second(latest), slot, time)
    if time > latest:
        page.last_signal_at = time
        rings.last_source[row] = slot
    return is_second
