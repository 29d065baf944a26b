"""What signals, outcomes and updates do to a page: the rules that scheduler and estimator share.

Events may come twice, late and out of order, so each is judged by the time that it carries: an
older one never undoes a newer one, and one that was applied changes nothing.

- A *signal* counts where it is news of its source, and if it was made after the page's last crawl
  (and the delay of signals): what came before, that crawl saw.
- An *outcome* counts if it is newer than the last crawl; a failure, if it is newer than the last
  attempt of any kind. A crawl forgets failures that are not newer than itself.
- Who *asks for a page at once* wants a crawl of that time or later; one that gets the page is the
  answer, whatever it was made for, and so is a newer copy.
- A 404 is a failure, too, until it is confirmed: the third in a row, over a time that fits the
  page's own rhythm, confirms it; a 410 counts as three.
- An *update* counts if it is not older than the last one.
- Who only *leads elsewhere* (a redirect), says that *another URL* is the one to keep, or may *not
  be crawled* by robots.txt, has nothing at its address for now: that counts as a 410 does. There is
  no crawl record of it, as there is none of a 404.
- A page is *away* if 404s confirmed it, or what counts as three, and no signal and no update was
  made after the last attempt to crawl it. This is so at any time, whichever of them was heard of
  first: 404s are counted as crawls come, and what names the page takes none of them back. So a page
  that was brought back is away again with the next 404. Why it is away is what the last attempt
  found; if that found nothing out, it is gone.
- A crawl that fails is tried again soon, and then ever more rarely: so a page that never answers
  costs next to nothing, however small the budget is. Who is away is looked at after a day, and then
  ever more rarely; who was brought back, as if the last look had been a first failure.

What still depends on the order of arrival: a failure that is heard of after a later attempt does
not count, and a crawl that is heard of after a later failure leaves the count of failures as it is.
How many signals wait, see `signal_times` of the scheduler.

Both keep pages in rows of their own layout, so what is here takes numbers and returns numbers:
compiled into its callers, it costs nothing.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.contracts.identity import BadUrl, digest_id_of, identify
from shared.contracts.messages import CrawlOutcome
from shared.policy.compiled import compiled
from shared.store.page_status import (
    ACTIVE,
    DISALLOWED,
    DUPLICATE,
    FIRST_AWAY,
    GONE,
    NEVER,
    REDIRECTED,
    REMOVED,
)
from shared.units import SECONDS_PER_DAY

SIGNAL: Final = 0
"""An event that is no crawl."""

CHANGED: Final = 1
UNCHANGED: Final = 2
IS_GONE: Final = 3
"""There is no such page, as far as its host knows now: 404."""

FAILED: Final = 4
COMPARE: Final = 5
"""A crawl that got the page, and whose digest says whether it changed."""

GONE_FOR_GOOD: Final = 6
"""410: its host says that the page will not come back."""

IS_REDIRECTED: Final = 7
"""The page's address only leads to another one."""

IS_DUPLICATE: Final = 8
"""The page says that another URL is the one to keep."""

IS_DISALLOWED: Final = 9
"""The robots.txt of its host forbids the page."""

_RESULTS: Final = {
    "changed": CHANGED,
    "unchanged": UNCHANGED,
    "not_modified": UNCHANGED,
    "gone": IS_GONE,
    "redirected": IS_REDIRECTED,
    "canonical": IS_DUPLICATE,
    "disallowed": IS_DISALLOWED,
    "failed": FAILED,
    None: COMPARE,
}
_GONE_STATUS: Final = 410


def kinds_of(outcomes: Sequence[CrawlOutcome]) -> NDArray[np.int8]:
    """Which kind of event each outcome is."""
    kinds = np.array([_RESULTS[outcome.result] for outcome in outcomes], np.int8)
    for place in np.flatnonzero(kinds == IS_GONE).tolist():
        if outcomes[place].http_status == _GONE_STATUS:
            kinds[place] = GONE_FOR_GOOD
    return kinds


def digests_of(outcomes: Sequence[CrawlOutcome]) -> NDArray[np.int64]:
    """Of the content that each outcome is about; `NO_DIGEST`: it says nothing of it.

    A 304 has no content: what a crawler makes of its empty body would pass for a change at the next
    crawl.
    """
    return np.array(
        [
            NO_DIGEST
            if outcome.digest is None or outcome.result == "not_modified"
            else digest_id_of(outcome.digest)
            for outcome in outcomes
        ],
        np.int64,
    )


def elsewhere_to_themselves(outcomes: Sequence[CrawlOutcome]) -> dict[int, str]:
    """Those outcomes that name as another page the page itself, and are not taken: place → why.

    Most name none, and cost next to nothing.
    """
    return {
        place: f"it is `{outcome.result}`, but to the page itself"
        for place, outcome in enumerate(outcomes)
        if (outcome.redirected_to is not None or outcome.canonical_url is not None)
        and _is_itself(outcome)
    }


def _is_itself(outcome: CrawlOutcome) -> bool:
    """Whether what an outcome names is its own page.

    What is no URL of a page is nobody: the page has nothing at its address all the same.
    """
    try:
        return (
            identify(outcome.redirected_to or outcome.canonical_url or "").page_id
            == identify(outcome.url).page_id
        )
    except BadUrl:
        return False


CONFIRMATIONS: Final = 3
"""So many 404s in a row say that a page is gone; all else that says that it is away counts as so
many."""

NO_DIGEST: Final = 0

LONGEST_RETRY_SECONDS: Final = 90.0 * SECONDS_PER_DAY

QUICK_RETRIES: Final = 2
"""After so many failures in a row a page's own rhythm counts, too; or that of who is away."""

FIRST_LOOK_SECONDS: Final = SECONDS_PER_DAY
"""After so long it is looked whether a page that is away has come back; then twice as long, ..."""

MOST_MISSES: Final = 100
"""More 404s in a row are not counted."""

MOST_FAILURES: Final = 1000
"""More failures in a row are not counted."""

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
def is_away(status: int) -> bool:
    """Whether a page is out of the order in which others are crawled, and only looked at."""
    return status >= FIRST_AWAY


@compiled
def brings_back(status: int, time: float, last_attempt_at: float) -> bool:
    """Whether a signal or an update makes a page be crawled again that was away.

    What a newer crawl found to be away stays so. The delay of signals does not count here: to look
    once too often costs a crawl, not to look may cost weeks.
    """
    return is_away(status) and time > last_attempt_at


@compiled
def is_wanted(urgent_at: float, last_crawled_at: float) -> bool:
    """Whether a page is still to be crawled at once, as somebody asked at a time (`NEVER`: nobody)
    and it was last crawled at another."""
    return urgent_at > last_crawled_at


@compiled
def is_back(status: int, misses: int) -> bool:
    """Whether a page was away, and something newer than its last attempt has brought it back."""
    return status == ACTIVE and misses >= CONFIRMATIONS


@compiled
def failures_that_count(status: int, failures: int, misses: int) -> int:
    """Failures in a row as far as they make a page wait: of one that was brought back, one."""
    return 1 if is_back(status, misses) else failures


@compiled
def misses_that_count(status: int, misses: int) -> int:
    """404s in a row as far as they make a page wait: of one that was brought back, none."""
    return 0 if is_back(status, misses) else misses


@compiled
def is_failure(kind: int) -> bool:
    """Whether an outcome says that a crawl did not get the page's content."""
    return kind in (FAILED, IS_GONE) or kind >= GONE_FOR_GOOD


@compiled
def misses_after(kind: int, misses: int) -> int:
    """How many 404s in a row there are after a failure; another one in between does not count."""
    if kind == FAILED:
        return misses
    more = min(misses + 1, MOST_MISSES)
    return max(more, CONFIRMATIONS) if kind >= GONE_FOR_GOOD else more


@compiled
def failures_after(kind: int, failures: int, misses: int) -> int:
    """Failures in a row after one more.

    Args:
        kind: of this one.
        failures: before.
        misses: after it (see `misses_after`). A 404 that says that the page is away leaves as many
            failures as there are 404s, so that those beyond are what has failed since.
    """
    if kind != FAILED and misses >= CONFIRMATIONS:
        return misses
    return min(failures + 1, MOST_FAILURES)


@compiled
def status_after_failure(kind: int, status: int, misses: int, was_named_since: bool) -> int:
    """Status of a page after a failure.

    Args:
        kind: of the failure.
        status: before.
        misses: 404s in a row, this one included.
        was_named_since: whether the page's last signal or update is newer than the crawl.
    """
    if status == REMOVED:
        return status
    if misses < CONFIRMATIONS or was_named_since:
        return ACTIVE
    if kind == IS_REDIRECTED:
        return REDIRECTED
    if kind == IS_DUPLICATE:
        return DUPLICATE
    return DISALLOWED if kind == IS_DISALLOWED else GONE


@compiled
def is_news(time: float, last: float) -> bool:
    """Whether a crawl is newer than the last one, a failure than the last attempt."""
    return time > last


@compiled
def forgets_failures(time: float, last_attempt_at: float) -> bool:
    """Whether a crawl that went well is the page's latest attempt, so that failures are over."""
    return time >= last_attempt_at


@compiled
def retry_wait(failures: float, misses: float, first: float, silence: float) -> float:
    """Seconds to leave a page alone after failures in a row, at most 90 days.

    They double with each. From the third on, they are as long as the time that has passed since
    the page was crawled well, if that is more: a page that is worth a crawl a week is not worth
    eight tries a day, and in n weeks it is tried 3 + log₂ n times. A 404 is confirmed in half of
    that time, from the first one on. What is away is looked at after a day, two, four, ...; a look
    that fails otherwise is made again soon, twice.

    Args:
        failures: in a row, above 0; as many as count (see `failures_that_count`).
        misses: how many of them were 404s; as many as count.
        first: seconds after the first one.
        silence: seconds from the last good crawl to the last failure; infinite: there was none.
    """
    is_out = misses >= CONFIRMATIONS
    others = failures - misses if is_out else failures
    wait: float = first * 2.0 ** min(max(others - 1.0, 0.0), _MOST_DOUBLINGS)
    if is_out:
        if not 0.0 < others <= QUICK_RETRIES:
            wait = max(wait, FIRST_LOOK_SECONDS * 2.0 ** (misses - CONFIRMATIONS))
    elif silence < np.inf and misses > 0:
        wait = max(wait, 0.5 * silence)
    elif silence < np.inf and failures > QUICK_RETRIES:
        wait = max(wait, silence)
    return min(wait, LONGEST_RETRY_SECONDS)


@compiled
def is_observation(kind: int, last_crawled_at: float, known_digest: int) -> bool:
    """Whether a crawl says if the page has changed since the one before."""
    if last_crawled_at == NEVER:
        return False
    return kind != COMPARE or known_digest != NO_DIGEST


@compiled
def is_change(kind: int, digest: int, known_digest: int) -> bool:
    """Whether a crawl that is an observation found a change."""
    return kind == CHANGED or (kind == COMPARE and digest != known_digest)


@compiled
def digest_after_crawl(kind: int, digest: int, known_digest: int) -> int:
    """The digest that the next one is compared with. That of before a change is of another content:
    after a crawl that found one and says no digest there is none."""
    return digest if digest != NO_DIGEST or kind == CHANGED else known_digest


@compiled
def status_after_crawl(status: int, is_latest: bool) -> int:
    """Status of a page after a crawl that got it; `is_latest`: no attempt to crawl it is newer."""
    return ACTIVE if is_away(status) and is_latest else status


@compiled
def retry_time(
    last_attempt_at: float, failures: int, misses: int, first: float, last_crawled_at: float
) -> float:
    """Before when a page is not to be crawled again; NEVER: its last crawl did not fail.

    Args:
        last_attempt_at: when it failed last.
        failures: in a row; as many as count (see `failures_that_count`).
        misses: how many of them were 404s; as many as count.
        first: seconds to wait after the first one.
        last_crawled_at: when it was last crawled well; `NEVER`: it never was.
    """
    if failures <= 0:
        return NEVER
    silence = max(last_attempt_at - last_crawled_at, 0.0)
    return last_attempt_at + retry_wait(np.float64(failures), np.float64(misses), first, silence)
