"""Every page is known to a shard, crawled in time, and in Postgres as its updates say."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

import numpy as np

from services.verify.checks.attempts import Attempt, Standing
from services.verify.checks.deadlines import deadlines, least_rate
from services.verify.checks.downtime import NEWS_SECONDS, Downtimes, down_within
from services.verify.checks.finding import Finding
from services.verify.ledger import Ledger, pauses
from services.verify.traffic import Expected
from shared.contracts.identity import identify
from shared.store.page_status import ACTIVE, REMOVED

Said = TypeVar("Said")

SLACK_SECONDS: Final = 12.0
"""A page may be so late: an over-age page waits for its host, and for a lost request's deadline."""

_BACKLOG_SLOTS: Final = 256.0
_BACKLOG_SECONDS: Final = 15.0
"""A page waits for slots of its shard as well, whose part of the budget follows what is due there
by reports, over so many slots of the whole (at 20 a second, 13 s): after a growth the pages of a
small shard may be due together as they were crawled in the turn of a large one. Longer is no
excuse."""


JUDGED_SHARE: Final = 0.5
"""Of the times that a page was due, at least so many can be judged, or the check has failed: where
the budget does not last for all, and so at the end of each run, nobody can say who was too late."""


def known_to_shards(ledger: Ledger, in_memory: Mapping[int, int]) -> Finding:
    """Every page that is not removed is in the memory of the scheduler that has its shard.

    Args:
        ledger: of the run.
        in_memory: shard → pages that a scheduler has there.
    """
    stored = Counter(page.shard for page in ledger.pages if page.status != REMOVED)
    offenders = [
        f"shard {shard}: {in_memory.get(shard)} pages in memory, {stored[shard]} in Postgres"
        for shard in range(ledger.layout.shards)
        if in_memory.get(shard) != stored[shard]
    ]
    return Finding.of(
        "shards", "every page is known to its shard", offenders, looked_at=stored.total()
    )


def as_updated(ledger: Ledger, expected: Expected) -> Finding:
    """Pages are there, or removed, and of a class, as the page updates say."""
    stored = {page.url: page for page in ledger.pages}

    def offenders() -> Iterator[str]:
        for url in expected.added:
            if url not in stored or stored[url].status != ACTIVE:
                yield f"{url} was added and is not there"
        for url in expected.removed:
            if url in stored and stored[url].status != REMOVED:
                yield f"{url} was removed and is still there"
        for url, importance in expected.importance.items():
            if url in stored and stored[url].importance != importance:
                yield f"{url} has importance {stored[url].importance}, not {importance}"
        for url, name in expected.classes.items():
            if url in stored and stored[url].page_class != name:
                yield f"{url} is of class {stored[url].page_class!r}, not {name!r}"

    return Finding.of(
        "updates",
        "pages are as their updates say",
        offenders(),
        looked_at=len(expected.added) + len(expected.removed) + len(expected.importance),
        added=len(expected.added),
        removed=len(expected.removed),
        classes=len(expected.classes),
    )


def without(expected: Expected, urls: Collection[str]) -> Expected:
    """What updates make of pages, but for those about which one may have come or not."""

    def kept(column: Mapping[str, Said]) -> dict[str, Said]:
        return {url: value for url, value in column.items() if url not in urls}

    return Expected(
        kept(expected.added),
        kept(expected.removed),
        kept(expected.importance),
        kept(expected.classes),
    )


def removed_are_left(ledger: Ledger, expected: Expected, downtimes: Downtimes) -> Finding:
    """A page that was removed is not crawled any more."""

    def delays() -> Iterator[tuple[float, str]]:
        for asked in ledger.requests:
            at = asked.request.requested_at
            removed = expected.removed.get(asked.request.url, at)
            if at > removed:
                unheard = at - removed - down_within(downtimes, removed, at)
                yield unheard, f"{asked.request.url}: crawled {at - removed:.2f} s after removal"

    found = Finding.of_delays(
        "removed pages",
        "removed pages are not crawled",
        delays(),
        NEWS_SECONDS,
        "slowest_news_seconds",
    )
    return replace(found, looked_at=len(expected.removed))


def visited(
    ledger: Ledger,
    held_at: Mapping[str, float],
    period: tuple[float, float],
    max_age_seconds: float,
    downtimes: Downtimes,
    added: Mapping[str, float],
    changes: Sequence[tuple[float, float]] = (),
) -> Finding:
    """No page waits longer for a crawl than its bound, and for its turn when many are due at once.

    A copy is as old as its crawl: what was asked for while the broker went away is crawled when it
    is back, and a crawl that failed, or a request that nobody answers, makes it no newer: its page
    is due as before, once the time-out and the wait after failures are over. After some in a row it
    goes by its value, and has another bound to itself. What was down after a page's turn does not
    count, nor do pauses of its host. A page that was not found may wait until that is to be
    confirmed, if that is later.

    Args:
        ledger: of the run.
        held_at: URL → when the copy that was held at the beginning was crawled.
        period: Unix seconds in which there was a budget.
        max_age_seconds: the bound.
        downtimes: in which nothing could be crawled.
        added: URL → when it was added, Unix seconds; of pages that were not removed.
        changes: when the budget was set (Unix seconds), and to how many crawls per second; empty:
            there is no limit.
    """
    end = period[1]
    of_hosts = pauses(ledger)

    def paused(url: str) -> Downtimes:
        return sorted((told, until) for told, until, _ in of_hosts.get(identify(url).host, ()))

    active = [page.url for page in ledger.pages if page.status == ACTIVE]
    firsts = {url: held_at.get(url, added.get(url, period[0]) - max_age_seconds) for url in active}
    waits = sorted(_waits(ledger, firsts, period, max_age_seconds, paused))
    due, crawled = (np.array([wait[field] for wait in waits]) for field in (0, 1))
    by = deadlines(due, changes, downtimes, end, crawled)
    judged = np.flatnonzero(np.isfinite(by))

    def delays() -> Iterator[tuple[float, str]]:
        for place in judged.tolist():
            wait, deadline = waits[place], by.item(place)
            until = min(wait.asked_at, end)
            late = until - deadline - _backlog_seconds(changes, deadline)
            if late > 0.0:
                late -= down_within([*downtimes, *paused(wait.url)], deadline, until)
            waited = f"not crawled again for {end - wait.copied_at:.1f} s"
            if wait.asked_at < math.inf:
                waited = f"{wait.asked_at - wait.copied_at:.1f} s without a crawl"
            yield late, f"{wait.url}: {waited} ({late:.1f} late)"

    found = Finding.of_delays(
        "visits",
        "every page is crawled within its bound",
        delays(),
        SLACK_SECONDS,
        "latest_seconds",
        pages=len(active),
        due=len(waits),
        cannot_be_judged=len(waits) - judged.size,
    )
    if judged.size >= JUDGED_SHARE * len(waits):
        return found
    scarce = (
        f"{len(waits) - judged.size} of {len(waits)} times that a page was due cannot be judged: "
        "the budget did not last for all that were due; give a higher --rate or fewer --pages"
    )
    return replace(found, count=found.count + 1, examples=[scarce, *found.examples])


def _backlog_seconds(changes: Sequence[tuple[float, float]], time: float) -> float:
    """In which a shard's backlog is worked off; where there is no limit, no time."""
    rate = least_rate(changes, time) if changes else math.inf
    return min(_BACKLOG_SLOTS / rate, _BACKLOG_SECONDS) if rate > 0.0 else _BACKLOG_SECONDS


def _waits(
    ledger: Ledger,
    firsts: Mapping[str, float],
    period: tuple[float, float],
    bound: float,
    paused: Callable[[str], Downtimes],
) -> Iterator["_Wait"]:
    """Each time at which a page was due within a period.

    Args:
        ledger: of the run.
        firsts: URL → when its copy was crawled at the beginning; of one that was never crawled,
            which is due at once, so long before.
        period: Unix seconds.
        bound: seconds.
        paused: asked for the pauses of a page's host.
    """
    begin, end = period
    attempts = Attempt.of(ledger)
    for url, first in firsts.items():
        standing, due = Standing(first), first + bound
        for attempt in (*attempts.get(url, ()), None):
            again_at = math.inf if attempt is None else attempt.asked_at
            turn = _after_pauses(max(due, begin), paused(url))
            if turn <= min(again_at, end):
                yield _Wait(turn, again_at, standing.copied_at, url)
            if attempt is not None:
                due = standing.due_after(attempt, bound, ledger.settings)


def _after_pauses(due: float, periods: Downtimes) -> float:
    for told, until in periods:
        due = until if told <= due < until else due
    return due


class _Wait(NamedTuple):
    """A page is due."""

    due: float
    asked_at: float
    """Infinite: never again."""
    copied_at: float
    """When the copy was crawled that it had."""
    url: str
