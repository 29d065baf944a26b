"""How often signals of a page come, as they come and do not: compiled, an event at a time."""

from typing import Any

from shared.contracts.fields import MAX_RATE
from shared.policy.compiled import compiled
from shared.policy.estimation.smoothed import signal_rate, signal_rate_after
from shared.store.page_status import NEVER
from shared.units import SECONDS_PER_DAY


@compiled
def watch(page: Any, time: float, signals: float) -> None:
    """Take an event into a page's γ: days without signals, and at their end so many.

    To be called before the event is noted. Events that come late were in days that are counted: a
    signal of them brings γ no further up than to the mean of all signals that ever came. Of a
    page that is added again nothing is known of the days between.
    """
    before = max(page.last_signal_at, page.last_attempt_at)
    if before == NEVER:
        before = time if page.signal_rate > 0.0 else page.first_seen_at
    watched = max(before - page.first_seen_at, 0.0) / SECONDS_PER_DAY
    days = max(time - before, 0.0) / SECONDS_PER_DAY
    rate = signal_rate_after(page.signal_rate, watched, days, signals)
    if time <= before:
        # What is remembered has no room for the days of a whole backlog: each of its signals would
        # raise γ by a part, without end.
        mean = signal_rate(page.signal_count + signals, watched)
        rate = max(page.signal_rate, min(rate, mean))
    page.signal_rate = min(rate, MAX_RATE)
