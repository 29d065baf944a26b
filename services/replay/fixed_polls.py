"""What polls at fixed intervals show of a trace's signals, and the slots that they leave.

For the peers, which have no rhythm of their own: every source is polled equally often, and a given
share of the budget goes to that. Polls by value are production's own (`by_polls`).
"""

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from services.replay.by_polls import FIRST_DAYS
from services.replay.trace import Trace

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FixedPolls:
    """A trace whose signals are known by polls at a fixed interval."""

    trace: Trace
    """Each signal comes when it is read; a page's earlier ones since the poll before are lost."""
    slot_days: Floats
    """Those that are left for crawls."""
    about_days: Floats
    """When the signals were sent, which a poll shows."""
    polls: int


def poll_days(trace: Trace, slot_days: Floats, source: Integers, share: float) -> float:
    """The interval at which polls take a share of the budget."""
    sources = np.unique(source[trace.host[trace.signal_pages]]).size
    rate = slot_days.size / (trace.days - trace.judged_from)
    return sources / (share * rate)


def polled_every(trace: Trace, slot_days: Floats, source: Integers, days: float) -> FixedPolls:
    """Poll each source that ever sends a signal every so many days.

    Args:
        trace: what happens.
        slot_days: the slots, rising; a poll takes that in which it is due, or the next free one.
        source: of each host.
        days: between two polls of a source.
    """
    sent = source[trace.host[trace.signal_pages]]
    due = [(trace.judged_from + FIRST_DAYS, int(one)) for one in np.unique(sent)]
    heapq.heapify(due)
    unread = {one: np.flatnonzero(sent == one) for _, one in due}
    is_crawl = np.ones(slot_days.size, np.bool_)
    free, polls = 0, 0
    shown, read = [np.empty(0, np.int64)], [np.empty(0)]
    while due:
        day, one = due[0]
        slot = max(int(np.searchsorted(slot_days, day)), free)
        if slot >= slot_days.size:
            break
        now = float(slot_days[slot])
        is_crawl[slot], free, polls = False, slot + 1, polls + 1
        come = int(np.searchsorted(trace.signal_days[unread[one]], now, "right"))
        news, unread[one] = unread[one][:come], unread[one][come:]
        last = news.size - 1 - np.unique(trace.signal_pages[news][::-1], return_index=True)[1]
        shown.append(news[np.sort(last)])
        read.append(np.full(last.size, now))
        heapq.heapreplace(due, (now + days, one))
    signals, days_read = np.concatenate(shown), np.concatenate(read)
    told = replace(
        trace,
        signal_days=days_read,
        signal_pages=trace.signal_pages[signals],
        signal_sources=trace.signal_sources[signals],
        known=None,
    )
    return FixedPolls(told, slot_days[is_crawl], trace.signal_days[signals], polls)
