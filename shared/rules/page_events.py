"""What signals, outcomes and updates do to a page: the rules that scheduler and estimator share.

Events may come twice, late and out of order, so each is judged by the time that it carries: an
older one never undoes a newer one, and one that was applied changes nothing.

- A *signal* counts where it is news of its source, and if it was made after the page's last crawl
  (and the delay of signals): what came before, that crawl saw. It brings a page back that was gone.
- An *outcome* counts if it is newer than the last crawl; a failure, if it is newer than the last
  attempt of any kind. A crawl forgets failures that are not newer than itself.
- An *update* counts if it is not older than the last one; a crawl that says that a page is gone,
  if the page was not updated since.

Both keep pages in rows of their own layout, so what is here takes numbers and returns numbers:
compiled into its callers, it costs nothing.
"""

from typing import Final

import numpy as np

from shared.policy.compiled import compiled
from shared.store.models import ACTIVE, GONE, NEVER
from shared.units import SECONDS_PER_DAY

SIGNAL: Final = 0
"""An event that is no crawl."""

CHANGED: Final = 1
UNCHANGED: Final = 2
IS_GONE: Final = 3
FAILED: Final = 4
COMPARE: Final = 5
"""A crawl that got the page, and whose digest says whether it changed."""

RESULTS: Final = {
    "changed": CHANGED,
    "unchanged": UNCHANGED,
    "gone": IS_GONE,
    "failed": FAILED,
    None: COMPARE,
}
"""By the `result` of a `CrawlOutcome`."""

NO_DIGEST: Final = 0

LONGEST_RETRY_SECONDS: Final = SECONDS_PER_DAY

_MOST_DOUBLINGS: Final = 60.0


@compiled
def is_after_crawl(time: float, last_crawled_at: float, delay: float) -> bool:
    """Whether a signal says something that the page's last crawl did not see.

    Args:
        time: of the signal.
        last_crawled_at: of the page; `NEVER`: it was never crawled.
        delay: seconds after a crawl in which signals are about what it saw.
    """
    return time > last_crawled_at + delay


@compiled
def status_after_signal(status: int) -> int:
    """Status of a page of which a signal counted."""
    return ACTIVE if status == GONE else status


@compiled
def is_news(time: float, last: float) -> bool:
    """Whether a crawl is newer than the last one, a failure than the last attempt."""
    return time > last


@compiled
def forgets_failures(time: float, last_attempt_at: float) -> bool:
    """Whether a crawl that went well is the page's latest attempt, so that failures are over."""
    return time >= last_attempt_at


@compiled
def retry_wait(failures: float, first: float) -> float:
    """Seconds to leave a page alone after so many failures in a row: they double, up to a day."""
    wait: float = first * 2.0 ** min(failures - 1.0, _MOST_DOUBLINGS)
    return min(wait, LONGEST_RETRY_SECONDS)


@compiled
def is_observation(kind: int, last_crawled_at: float, known_digest: int) -> bool:
    """Whether a crawl says if the page has changed since the one before."""
    if last_crawled_at == NEVER or kind == IS_GONE:
        return False
    return kind != COMPARE or known_digest != NO_DIGEST


@compiled
def is_change(kind: int, digest: int, known_digest: int) -> bool:
    """Whether a crawl that is an observation found a change."""
    return kind == CHANGED or (kind == COMPARE and digest != known_digest)


@compiled
def digest_after_crawl(kind: int, digest: int, known_digest: int) -> int:
    """The digest that the next one is compared with."""
    return digest if digest != NO_DIGEST and kind != IS_GONE else known_digest


@compiled
def status_after_crawl(status: int, kind: int, was_updated_since: bool) -> int:
    """Status of a page after a crawl that reached its host.

    Args:
        status: before.
        kind: not `FAILED`.
        was_updated_since: whether the page's last update is newer than the crawl.
    """
    if kind != IS_GONE:
        return ACTIVE if status == GONE else status
    return GONE if status == ACTIVE and not was_updated_since else status


@compiled
def status_after_upsert(status: int, time: float, last_crawled_at: float) -> int:
    """Status of a page that an update wants crawled.

    What a newer crawl found to be gone stays so.
    """
    return status if status == GONE and not time > last_crawled_at else ACTIVE


@compiled
def retry_time(last_attempt_at: float, failures: int, first: float) -> float:
    """Before when a page is not to be crawled again; NEVER: its last crawl did not fail."""
    return last_attempt_at + retry_wait(np.float64(failures), first) if failures > 0 else NEVER
