"""When a page is due if nothing happens to it: one rule, for schedulers that are asked about a page
and for answers that the database alone gives.

Of one page, in plain numbers. The kernels that find the next of a million pages
(`services.scheduler.picking.priority`) come to the same, and a test holds the two together.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.policy.compiled import compiled
from shared.rules.page_events import is_away, is_wanted
from shared.store.page_status import ACTIVE, NEVER
from shared.units import SECONDS_PER_DAY

PATIENCE: Final = 3
"""After so many failures in a row a page has no claim to go before what goes by its value."""


@compiled
def has_claim(status: int, failures: int) -> bool:
    """Whether a page may go before what goes by its value, as it is new, beyond its maximum age, or
    wanted at once: not where crawlers never get it.

    Args:
        status: of the page, which is not removed.
        failures: in a row, as far as they count, and requests that nobody answered or that wait.
    """
    return not is_away(status) and failures < PATIENCE


@dataclass(frozen=True, slots=True)
class PageStanding:
    """What decides when a page is due; Unix seconds, `NEVER` where there was none."""

    status: int
    last_crawled_at: float
    last_attempt_at: float
    """Its last crawl, well or not."""
    failures: int
    """As `has_claim` takes them."""
    retry_at: float
    """Until when it is left alone after them."""
    max_age_days: float = math.inf
    urgent_at: float = NEVER
    """When somebody asked for it at once."""
    requested_at: float = NEVER
    """When it was last asked for; where that is not known, never."""
    deadline: float = NEVER
    """Until when that waits for its answer."""

    @property
    def has_claim(self) -> bool:
        """See the function."""
        return bool(has_claim(self.status, self.failures))

    @property
    def is_crawled(self) -> bool:
        """Whether it is asked for at all: in its turn, or now and then in case that it is back."""
        is_open = self.failures > 0 or max(self.urgent_at, self.deadline) > NEVER
        return self.status == ACTIVE or bool(is_away(self.status) and is_open)

    @property
    def urgent_from(self) -> float:
        """From when on it goes first, as somebody asks for it at once; infinite: nobody does, or
        crawlers have failed to get it again and again."""
        if not is_wanted(self.urgent_at, self.last_crawled_at):
            return math.inf
        earliest = max(self.urgent_at, self.deadline)
        if self.urgent_at > max(self.requested_at, self.last_attempt_at):
            return earliest  # asked for since it was last tried
        return max(earliest, self.retry_at) if self.has_claim else math.inf


def due_at(
    page: PageStanding,
    now: float,
    threshold: float,
    days_to_value: Callable[[float], float],
    least_interval: float = 0.0,
    least_value: float = 0.0,
) -> float:
    """From when on a page is the next in turn, not before now; infinite: time alone never gets it
    there.

    Args:
        page: as it stands.
        now: Unix seconds.
        threshold: crawl value from which on a slot goes to a page by its value.
        days_to_value: asked for the days from the page's last crawl until it is worth so much;
            infinite: it never is. Of a page that was never crawled, whether it is.
        least_interval: seconds from a page's last crawl to the next.
        least_value: no slot is spent on less, but for new pages.
    """
    if not page.is_crawled:
        return math.inf
    ready = max(now, page.retry_at, page.deadline, page.last_crawled_at + least_interval)
    in_turn = max(ready, _in_turn_at(page, threshold, days_to_value, least_value))
    return min(in_turn, max(now, page.urgent_from))


def _in_turn_at(
    page: PageStanding, threshold: float, days_to_value: Callable[[float], float], floor: float
) -> float:
    """When it has reached the threshold, or its maximum age, whatever it waits for."""
    if page.last_crawled_at == NEVER:
        is_next = page.has_claim or math.isfinite(days_to_value(max(threshold, floor)))
        return NEVER if is_next else math.inf
    days = days_to_value(max(threshold, floor))
    if page.has_claim and math.isfinite(page.max_age_days):
        worth_it = days_to_value(floor) if floor > 0.0 else 0.0
        days = min(days, max(page.max_age_days, worth_it))
    return page.last_crawled_at + days * SECONDS_PER_DAY
