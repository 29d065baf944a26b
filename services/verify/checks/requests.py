"""Each request answered or asked again, no page twice in flight, nothing crawled twice in a row."""

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from services.verify.checks.downtime import NEWS_SECONDS
from services.verify.checks.finding import Finding
from services.verify.ledger import AWAY, NO_CRAWLS, Answered, Asked, Ledger, first_answers
from shared.contracts.messages import CrawlOutcome, PageUpdate

ROUNDING_SECONDS: Final = 1e-5
"""Times on the topics are rounded to microseconds."""


def _by_page(ledger: Ledger) -> dict[int, list[Asked]]:
    found: dict[int, list[Asked]] = defaultdict(list)
    for asked in ledger.requests:
        found[asked.request.page_id].append(asked)
    return found


def in_flight_twice(ledger: Ledger) -> Finding:
    """No page is asked for again before its request is answered or late.

    Late is what has waited for the time-out of the settings, whatever deadline the request names.
    """
    answered = first_answers(ledger)
    timeout = ledger.settings.request_timeout_seconds

    def offenders() -> Iterator[str]:
        for of_page in _by_page(ledger).values():
            for first, second in itertools.pairwise(of_page):
                waited = second.request.requested_at - first.request.requested_at
                late = waited >= timeout - ROUNDING_SECONDS
                known = answered.get(first.request.request_id, math.inf)
                if not late and known > second.written_at:
                    yield (
                        f"{second.request.url}: asked at {first.request.requested_at:.3f} "
                        f"(written {first.written_at:.3f}), answered {known:.3f}, asked again at "
                        f"{second.request.requested_at:.3f} (written {second.written_at:.3f})"
                    )

    return Finding.of(
        "in flight",
        "no page has two requests in flight",
        offenders(),
        looked_at=len(ledger.requests),
    )


def open_at_once(ledger: Ledger, bounds: Mapping[str, int]) -> Finding:
    """No host has more requests on their way at once than its operators allow: with the broker, and
    not answered, as far as the broker has the answers, nor late.

    Args:
        ledger: of the run.
        bounds: host → how many; of those that have any, the same all the time.
    """
    answered = first_answers(ledger)
    timeout = ledger.settings.request_timeout_seconds
    by_host: dict[str, list[Asked]] = defaultdict(list)
    for asked in ledger.requests:
        if asked.request.host in bounds:
            by_host[asked.request.host].append(asked)

    def offenders() -> Iterator[str]:
        for host, of_host in by_host.items():
            before: list[Asked] = []
            for asked in sorted(of_host, key=lambda one: (one.partition, one.offset)):
                before = [
                    one
                    for one in before
                    if answered.get(one.request.request_id, math.inf) > asked.written_at
                    and asked.request.requested_at - one.request.requested_at < timeout
                ]
                if len(before) >= bounds[host]:
                    yield (
                        f"{host}: {asked.request.url} asked at {asked.request.requested_at:.3f} "
                        f"(written {asked.written_at:.3f}), while {len(before)} others were open"
                    )
                before.append(asked)

    return Finding.of(
        "open at once",
        "no host has more requests on their way at once than it may have",
        offenders(),
        looked_at=sum(map(len, by_host.values())),
        hosts=len(by_host),
    )


def unanswered(ledger: Ledger) -> Finding:
    """Requests without an outcome are asked again; those of pages that were found gone or
    away by their own rhythm, which may take longer."""
    answered = first_answers(ledger)
    latest: dict[str, CrawlOutcome] = {}
    for one in ledger.outcomes:
        before = latest.get(one.outcome.url)
        if before is None or one.outcome.crawled_at >= before.crawled_at:
            latest[one.outcome.url] = one.outcome
    gone = {url for url, outcome in latest.items() if outcome.result in ("gone", *AWAY)}
    last = {page: asked[-1] for page, asked in _by_page(ledger).items()}
    asked_again = sum(a.request.request_id not in answered for a in ledger.requests)
    active = {page.page_id for page in ledger.pages if page.status == 0}
    offenders = [
        f"{asked.request.url}: {asked.request.request_id} at {asked.request.requested_at:.3f}"
        for asked in last.values()
        if asked.request.request_id not in answered
        and asked.request.page_id in active
        and asked.request.url not in gone
    ]
    return Finding.of(
        "answered",
        "each request is answered, or its page asked for again",
        offenders,
        looked_at=len(ledger.requests),
        unanswered_requests=asked_again,
    )


class _KnownAnswers:
    """When those who ask on a partition know the answers of a kind: from the first that stands on
    it. While shards grow an answer may be passed on to another one, and come back: meanwhile
    nobody knows it there."""

    def __init__(self, ledger: Ledger, counts: Callable[[str | None], bool]) -> None:
        """
        Args:
            ledger: of the run.
            counts: whether an answer of this result is of the kind.
        """
        self._by_partition = _answers_by_partition(ledger, counts)
        self._copies: dict[str | None, list[Answered]] = defaultdict(list)
        for one in sorted(ledger.outcomes, key=lambda answered: answered.written_at):
            self._copies[one.outcome.request_id].append(one)

    def known_at(self, first: Asked, second: Asked) -> float:
        """When first's answer was known to whoever asked second; inf: it was not."""
        request_id = first.request.request_id
        there = self._by_partition.get(second.partition, {}).get(request_id, math.inf)
        came_last = math.inf
        for copy in reversed(self._copies[request_id]):
            if copy.written_at >= second.request.requested_at:
                continue
            if copy.partition != second.partition:
                return max(there, came_last)
            came_last = copy.written_at
        return there


def _answers_by_partition(
    ledger: Ledger, counts: Callable[[str | None], bool]
) -> dict[int, dict[str, float]]:
    """Partition → request → when its first answer was written there, of the results that count."""
    first = ledger.layout.counts[0]
    asked: dict[int, list[Asked]] = defaultdict(list)
    for one in ledger.requests:
        asked[one.partition % first].append(one)
    outcomes: dict[int, list[Answered]] = defaultdict(list)
    for answered in ledger.outcomes:
        if counts(answered.outcome.result):
            outcomes[answered.partition].append(answered)
    return {
        number: first_answers(replace(ledger, requests=asked[number % first], outcomes=there))
        for number, there in outcomes.items()
    }


def forgotten_crawls(ledger: Ledger, max_age_seconds: float) -> Finding:
    """No page is crawled as new, or as too old, that was crawled just before.

    A failure is no crawl, whichever request it answers: one that was late may answer a later one.
    """
    answers = _KnownAnswers(ledger, lambda result: result not in NO_CRAWLS)
    by_page = _by_page(ledger)
    missed = {a.outcome.request_id for a in ledger.outcomes if a.outcome.result in NO_CRAWLS}

    def offenders() -> Iterator[str]:
        for of_page in by_page.values():
            for first, second in itertools.pairwise(of_page):
                request = second.request
                # By the slot: the page was chosen before the request waited for the broker.
                unknown = answers.known_at(first, second) + NEWS_SECONDS > request.requested_at
                if first.request.request_id in missed or unknown:
                    continue
                age = request.requested_at - first.request.requested_at
                if request.reason == "new" or (
                    request.reason == "max-age" and age < max_age_seconds - NEWS_SECONDS
                ):
                    yield f"{request.url}: {request.reason}, but crawled {age:.2f} s before"

    return Finding.of(
        "crawls in a row",
        "no crawl is forgotten and made again",
        offenders(),
        looked_at=sum(len(of_page) - 1 for of_page in by_page.values()),
    )


def asked_while_away(ledger: Ledger, updates: Sequence[PageUpdate]) -> Finding:
    """No page that a crawl found to be away is asked for soon after, but one that somebody has
    named since.

    Args:
        ledger: of less than a day: then such pages are looked at.
        updates: of pages.
    """
    named: dict[str, list[float]] = defaultdict(list)
    for url, at in (
        *((signal.url, signal.observed_at) for signal in ledger.page_signals),
        *((update.url, update.updated_at or 0.0) for update in updates),
    ):
        named[url].append(at)
    away = [one for one in ledger.outcomes if one.outcome.result in AWAY]
    found_at = {one.outcome.request_id: one.outcome.crawled_at for one in away}
    answers = _KnownAnswers(ledger, lambda result: result in AWAY)

    def offenders() -> Iterator[str]:
        for of_page in _by_page(ledger).values():
            for first, second in itertools.pairwise(of_page):
                found, asked = found_at.get(first.request.request_id), second.request.requested_at
                if found is None or answers.known_at(first, second) + NEWS_SECONDS > asked:
                    continue
                if not any(found < at < asked + NEWS_SECONDS for at in named[second.request.url]):
                    yield f"{second.request.url}: found to be away {asked - found:.2f} s before"

    return Finding.of(
        "away",
        "who is away is not asked for until somebody names it",
        offenders(),
        looked_at=len(ledger.outcomes),
        found_away=len(away),
    )


def slots_filled_once(ledger: Ledger) -> Finding:
    """No slot of the budget is filled by two requests: by a scheduler that lost its shards, or by
    two shards. A slot is known by its time, which no other slot of the whole system has.
    """
    slots = defaultdict(list)
    for asked in ledger.requests:
        slots[round(asked.request.requested_at * 1e6)].append(asked)
    offenders = [
        f"slot {microseconds / 1e6:.6f}: {len(filled)} requests, of shards "
        f"{sorted({asked.partition for asked in filled})}"
        for microseconds, filled in slots.items()
        if len(filled) > 1
    ]
    return Finding.of(
        "slots", "each slot is filled once, over all shards", offenders, looked_at=len(slots)
    )


def right_partitions(ledger: Ledger) -> Finding:
    """Requests stand on their host's shard; once it was split from another, never there again."""
    layout, last = ledger.layout, dict[str, int]()
    offenders = []
    for asked in ledger.requests:
        host, partition = asked.request.host, asked.partition
        if not layout.is_near(host, partition) or partition < last.get(host, 0):
            offenders.append(f"{asked.request.url} on {partition}")
        elif partition not in layout.places_of(host):
            offenders.append(f"{asked.request.url} on {partition}, which never had its host")
        last[host] = partition
    return Finding.of(
        "partitions",
        "requests stand on their host's shard",
        offenders,
        looked_at=len(ledger.requests),
    )
