"""What the readers of a shard's topics accept, so that scheduler and estimator act on the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from shared.contracts.identity import is_private_host, not_public
from shared.contracts.messages import CrawlOutcome, PageUpdate
from shared.runtime.clock import Clock, SystemClock
from shared.runtime.settings import Settings
from shared.units import SECONDS_PER_DAY

BUSY_STATUSES = frozenset({429, 503})
"""HTTP statuses by which a host asks to be left alone."""

BUSY_HOST_SECONDS = 60.0
"""A host that answers so without Retry-After is left alone for so long."""

CLOCK_SLACK_SECONDS = 5.0
"""Wall seconds by which processes on a simulated clock may disagree about its time."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What a record is checked against."""

    now: float
    """Clock time, Unix seconds."""
    latest: float
    """Times after this are refused."""
    record_times_count: bool
    """Whether a record's own time is the clock's; on a simulated clock it is not."""
    longest_pause: float = SECONDS_PER_DAY
    """Clock seconds: a host that asks for more gets so much."""
    private_hosts: bool = True
    """Whether pages may be added on hosts that are not on the public internet."""

    @classmethod
    def at_present(cls, settings: Settings, clock: Clock) -> Self:
        """What is accepted now."""
        real = isinstance(clock, SystemClock)
        slack = 0.0 if real else clock.span(CLOCK_SLACK_SECONDS)
        now = clock.now()
        return cls(
            now=now,
            latest=now + settings.signal_future_tolerance_seconds + slack,
            record_times_count=real,
            longest_pause=settings.longest_host_pause_seconds,
            private_hosts=settings.allow_private_hosts,
        )

    def arrival(self, record: ConsumerRecord) -> float:
        """When a record came, in clock time."""
        if self.record_times_count and record.timestamp > 0:
            return float(min(record.timestamp / 1000.0, self.now))
        return self.now

    def why_not_added(self, update: PageUpdate, host: str) -> str | None:
        """Why an update of a page on a host is not taken; None: it is. Whatever was added before
        can be removed."""
        if self.private_hosts or update.op == "remove" or not is_private_host(host):
            return None
        return not_public(host)

    def why_not_yet(self, time: float) -> str | None:
        """Why a time cannot be; None: it can."""
        if time <= self.latest:
            return None
        return f"its time {time} lies in the future (now is {self.now})"

    def busy_until(self, outcomes: Sequence[CrawlOutcome]) -> NDArray[np.float64]:
        """Until when the host of each outcome asks to be left alone; −inf: it does not."""
        until = np.full(len(outcomes), -np.inf)
        for place, outcome in enumerate(outcomes):
            if outcome.retry_after_seconds is None and outcome.http_status not in BUSY_STATUSES:
                continue
            asked = outcome.retry_after_seconds
            seconds = BUSY_HOST_SECONDS if asked is None else asked
            until[place] = outcome.crawled_at + min(seconds, self.longest_pause)
        return until
