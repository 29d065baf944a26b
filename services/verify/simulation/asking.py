"""Whether pages are asked for again, and none that was just crawled."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from services.coordinator.allotment import HICCUP_SHARE
from services.verify.checks import requests
from services.verify.checks.downtime import NEWS_SECONDS
from services.verify.checks.finding import Finding
from services.verify.ledger import AWAY, NO_CRAWLS, Answered, Ledger
from services.verify.records import decoded
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.counting import appended
from services.verify.simulation.facts import Facts
from services.verify.simulation.truth import Page
from services.verify.simulation.workers import MAX_AGE_SECONDS
from shared.contracts.messages import DemandCurve, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, DEMAND_CURVES, PAGE_UPDATES
from shared.pacing.slots import SlotTimeline
from shared.rules.host_groups import group_of

FEW_SLOTS: Final = 0.5
"""Slots a page within the bound. What a shard left empty once it is taken to be unable to use, and
has back within a minute: with half a slot a page it is on its way."""

SPLIT_SECONDS: Final = 4.0
"""A shard that was split is loaded, and has slots that its pages are worth, within these."""

MOST_IN_VAIN: Final = 3
"""Requests in a row after which the next may come later than simulations take."""


def asked_again(ledger: Ledger, facts: Facts, timeline: SlotTimeline) -> tuple[Finding, Finding]:
    """After the last fault every page is asked for again, or crawled late for what it was asked for
    before, within its bound: where its shard had the slots since the page was due, and everywhere
    if there were for all. Not where it was found to be away: it comes back, or does not, as others
    check.

    Not where its host was asked for such pages as often as it may be since this one was due; within
    the bound, where parts of the slots are kept. Nor need a page be due whose host is at an address
    that has a limit: all of those there ask for more than it takes; nor one whose host shares a
    domain's limit, where parts of the slots are kept for other reasons: it waits for a turn of its
    own. Nor need there be slots for a shard all of whose hosts share a limit with those of others,
    nor for one that was away twice, or of which a host that may have but so many requests open
    waited for an answer that never came: coordinators take what it left empty then for what it
    cannot use, and it has slots again within a minute: no simulation lasts that long. Nor need a
    page be due of which an outcome was deleted unread, or that was asked for in vain some times in
    a row: after failures and without answers it is asked for ever more rarely. Nor one whose
    shard was split meanwhile.
    """
    scale, truth = facts.plan.scale, facts.truth
    until = BEGINNING + scale.seconds
    since = until - scale.bound_seconds
    crawled = _last_crawls(ledger)
    last = dict(crawled)
    in_vain: Counter[str] = Counter()
    for asked in ledger.requests:
        url = asked.request.url
        in_vain[url] += asked.request.requested_at > crawled.get(url, -math.inf)
        last[url] = max(asked.written_at, last.get(url, -math.inf))
    layout = facts.database.layout
    slots = [timeline.allotted(n, since, until) for n in range(layout.shards)]
    pages = Counter(layout.shard_of(page.host) for page in truth.pages)
    split = facts.split_since(scale.seconds - scale.bound_seconds - SPLIT_SECONDS)
    starving = _starving(slots, pages) - _away_twice(ledger, facts) - _of_groups(facts) - split
    starving -= _held_open(ledger, facts)
    unsure = truth.unsure | facts.unread(CRAWL_OUTCOMES.name) | _found_away(ledger)
    forgotten: list[str] = []
    starved: list[str] = []
    for page in truth.pages:
        is_due = page.removed_at > facts.ended_at and BEGINNING + page.added_at < since
        is_due = is_due and page.url not in unsure and in_vain[page.url] < MOST_IN_VAIN
        is_due = is_due and page.host not in truth.at_address
        is_due = is_due and not (scale.has_parts and group_of(page.host, truth.group_limits))
        at, shard = last.get(page.url, -math.inf), layout.shard_of(page.host)
        is_due = is_due and shard not in split
        due = max(at + MAX_AGE_SECONDS, BEGINNING + page.added_at)
        if scale.has_parts:
            # Crawls of its host go to several, by turns: some of them it may miss in a row.
            due = max(due, since)
        if not is_due or at >= since or _is_host_busy(ledger, facts, page, due, until):
            continue
        had = timeline.allotted(shard, max(since, at + MAX_AGE_SECONDS), until)
        text = f"{page.url}: last asked for at {at - BEGINNING:.2f}; its shard had {had:.1f} slots"
        if had >= 2 * pages[shard]:
            forgotten.append(text)
        elif shard in starving:
            starved.append(text)
    return (
        Finding.of("forgotten", "every page is asked for again where there are slots", forgotten),
        Finding.of("starved", "every shard that has pages to crawl gets slots", starved),
    )


def _starving(slots: Sequence[float], pages: Counter[int]) -> set[int]:
    """Shards that had next to no slots while there were slots for all pages."""
    if sum(slots) < 2 * pages.total():
        return set()
    return {shard for shard, had in enumerate(slots) if had < FEW_SLOTS * pages[shard]}


def _of_groups(facts: Facts) -> set[int]:
    """Shards without a page but those of hosts that share a limit."""
    truth, layout = facts.truth, facts.database.layout
    others = {
        layout.shard_of(page.host)
        for page in truth.pages
        if group_of(page.host, truth.group_limits) is None and page.host not in truth.at_address
    }
    return {layout.shard_of(page.host) for page in truth.pages} - others


def _held_open(ledger: Ledger, facts: Facts) -> set[int]:
    """Shards of which a host waited for an answer in vain, and may have no more requests open."""
    answers = {answered.outcome.request_id for answered in ledger.outcomes}
    return {
        facts.database.layout.shard_of(one.request.host)
        for one in ledger.requests
        if one.request.host in facts.truth.open_bounds and one.request.request_id not in answers
    }


def _found_away(ledger: Ledger) -> set[str]:
    """URLs of pages whose last attempt found them away."""
    found = {
        answered.outcome.url: answered.outcome.result
        for answered in sorted(ledger.outcomes, key=lambda answered: answered.outcome.crawled_at)
    }
    return {url for url, result in found.items() if result in AWAY}


def _last_crawls(ledger: Ledger) -> dict[str, float]:
    """URL → when it was crawled last, if it ever was."""
    found: dict[str, float] = {}
    for answered in ledger.outcomes:
        url, at = answered.outcome.url, answered.outcome.crawled_at
        if answered.outcome.result not in NO_CRAWLS:
            found[url] = max(at, found.get(url, -math.inf))
    return found


def _is_host_busy(ledger: Ledger, facts: Facts, page: Page, due: float, until: float) -> bool:
    """Whether a page's host had its limit's worth of requests from when the page was due, none of
    them for less than it: what is crawled for its value comes after what is new or too old, but
    where parts of the slots are kept for reasons."""
    asked = sum(
        one.request.host == page.host
        and (one.request.reason != "value" or facts.plan.scale.has_parts)
        and due <= one.written_at <= until
        for one in ledger.requests
    )
    rate = facts.truth.host_limits[page.host]
    if page.host in facts.truth.open_bounds:
        # Each that nobody answers keeps its place until it times out.
        bound = facts.truth.open_bounds[page.host]
        rate = min(rate, bound / ledger.settings.request_timeout_seconds)
    # One less: its bucket was empty when the page was due.
    return asked >= int(rate * max(until - due, 0.0)) - 1


def _away_twice(ledger: Ledger, facts: Facts) -> set[int]:
    """Shards that did not report for long, or were not heard, more than once: `Fleet.report`.

    A coordinator that hears nobody for so long that all are silent shares out anew by what it hears
    first, and again by what comes of that.
    """
    silent = ledger.settings.silent_after_seconds
    longest = HICCUP_SHARE * silent
    reported: dict[int, list[float]] = defaultdict(list)
    for log in facts.broker.topics[DEMAND_CURVES.name]:
        for at, _, curve in appended(DemandCurve, log):
            reported[curve.shard].append(at)
    gaps = {
        shard: sum(later - one > longest for one, later in itertools.pairwise(sorted(times)))
        for shard, times in reported.items()
    }
    unheard = sum(
        (fault.seconds > longest) + (fault.seconds > silent)
        for fault in facts.plan.faults
        if fault.target.startswith("coordinator")
    )
    return {shard for shard, count in gaps.items() if count + unheard > 1}


def crawls_in_a_row(ledger: Ledger, facts: Facts) -> tuple[Finding, Finding]:
    """No crawl is forgotten and made again, nor what it found of a page that is away, but for those
    that the broker has lost.

    Whoever cannot read an outcome, as its partition has no leader or a transaction is open there,
    asks again when the request times out: it counts as written when it can be read.
    """
    has_lost = bool(facts.truth.breaks or facts.gaps)
    logs = facts.broker.topics[CRAWL_OUTCOMES.name]

    def read_from(answered: Answered) -> float:
        written = answered.written_at - BEGINNING
        return BEGINNING + logs[answered.partition].read_from(written, NEWS_SECONDS)

    kept = replace(
        ledger,
        requests=[] if has_lost else ledger.requests,
        outcomes=[replace(one, written_at=read_from(one)) for one in ledger.outcomes],
    )
    updates = [update for _, update in decoded(PageUpdate, ledger.raw[PAGE_UPDATES.name])]
    return (
        requests.forgotten_crawls(kept, MAX_AGE_SECONDS),
        requests.asked_while_away(kept, [*updates, *facts.truth.imported]),
    )
