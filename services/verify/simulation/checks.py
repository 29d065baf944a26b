"""The promises, checked on what a simulation left behind: those of `services.verify.checks` where
they can be asked of it, and those that need the truth or the workers' memory."""

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from services.scheduler.flow.loading import build_shard
from services.verify.checks import delivery, limits, requests
from services.verify.checks.finding import Finding
from services.verify.ledger import Answered, Asked, Ledger, Page
from services.verify.records import decoded
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.facts import Facts
from services.verify.simulation.faults import MOST_AHEAD_SECONDS
from services.verify.simulation.reference import PageRecord, page_records
from services.verify.simulation.store.statements import Statements
from services.verify.simulation.workers import settings_of
from shared.contracts.messages import (
    CrawlOutcome,
    CrawlRequest,
    Multipliers,
    PageSignal,
    PageUpdate,
    Signal,
)
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    HOST_LIMITS,
    MULTIPLIERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
)
from shared.pacing.slots import SlotPlan, SlotTimeline, is_late
from shared.runtime.dead_letters import Letter
from shared.runtime.kafka import appended_at
from shared.store.positions import ESTIMATOR

LEARNED: Final = (PAGE_SIGNALS, CRAWL_OUTCOMES, PAGE_UPDATES, HOST_LIMITS)

_SURELY_READ: Final = frozenset(topic.name for topic in (*LEARNED, SIGNALS))
"""Topics of which no message may be left out, a bad one neither."""

_TOLERANCE: Final = 1e-6
"""Seconds: times on topics are exact."""

_LEARNED_TOLERANCE: Final = 0.12
"""Parameters are said again only when they have changed by a part of this."""


def check(facts: Facts) -> list[Finding]:
    """All checks."""
    ledger = ledger_of(facts)
    reference = _reference(ledger)
    return [
        Finding.of(
            "ready",
            "all workers are ready at the end",
            [f"{name}: {why}" for name, why in sorted(facts.not_ready.items())],
        ),
        _at_rest(facts),
        *delivery.crawls_applied(ledger, {}),
        _learned(facts, reference),
        _observed(facts, reference),
        _signals_arrived(ledger, facts),
        _letters(ledger, facts),
        requests.in_flight_twice(ledger),
        requests.right_partitions(ledger),
        _slots(ledger, facts),
        _in_time(ledger, facts),
        limits.hosts(ledger, facts.truth.host_limits),
        *_asked_again(ledger, facts),
        _owned_once(facts),
        _memory(facts),
    ]


def ledger_of(facts: Facts) -> Ledger:
    """Everything on the topics and in the tables, as `freshet verify` reads it."""
    broker, database = facts.broker, facts.database
    settings = settings_of(facts.plan.scale.processes()[0], facts.plan.scale)
    raw = {name: broker.records(name) for name in broker.topics}

    def at(record: Any) -> float:
        log = broker.partition(record.topic, record.partition)
        return BEGINNING + log.appended_at[record.offset]

    asked = [
        Asked(message, record.partition, record.offset, at(record))
        for record, message in decoded(CrawlRequest, raw[CRAWL_REQUESTS.name])
    ]
    asked.sort(key=lambda one: one.request.requested_at)
    return Ledger(
        settings=settings,
        raw=raw,
        requests=asked,
        outcomes=[
            Answered(message, record.partition, record.offset, at(record))
            for record, message in decoded(CrawlOutcome, raw[CRAWL_OUTCOMES.name])
        ],
        signals=[(at(r), message) for r, message in decoded(Signal, raw[SIGNALS.name])],
        page_signals=[message for _, message in decoded(PageSignal, raw[PAGE_SIGNALS.name])],
        pages=[
            Page(
                page_id,
                shard,
                database.urls[shard, page_id],
                row["status"],
                row["crawls"],
                row["last_crawled_at"],
                row["importance"],
            )
            for shard, rows in sorted(database.pages.items())
            for page_id, row in sorted(rows.items())
        ],
        observations=[row[1:] for row in database.observations],
        transactions=[],
    )


def _reference(ledger: Ledger) -> dict[str, PageRecord]:
    return page_records(
        [message for _, message in decoded(PageUpdate, ledger.raw[PAGE_UPDATES.name])],
        ledger.page_signals,
        [answered.outcome for answered in ledger.outcomes],
    )


def _at_rest(facts: Facts) -> Finding:
    """Every position has reached the end of its partition."""

    def behind() -> Iterator[str]:
        for topic in LEARNED:
            for log in facts.broker.topics[topic.name]:
                at = facts.database.positions.get((ESTIMATOR, topic.name, log.number), 0)
                last = log.records[-1].offset + 1 if log.records else 0
                if not last <= at <= log.end:
                    yield f"{topic.name}/{log.number}: at {at}, the last record ends at {last}"

    return Finding.of("rest", "everything is applied in the end, and nothing beyond", behind())


def _learned(facts: Facts, reference: dict[str, PageRecord]) -> Finding:
    """Pages in the database are what the events come to."""

    def offenders() -> Iterator[str]:
        stored = {
            facts.database.urls[shard, page_id]: row
            for shard, rows in facts.database.pages.items()
            for page_id, row in rows.items()
        }
        for url in sorted(stored.keys() ^ reference.keys()):
            yield f"{url}: {'not wanted' if url in stored else 'not there'}"
        for url in sorted(stored.keys() & reference.keys()):
            row, page = stored[url], reference[url]
            expected = {
                "crawls": page.crawls,
                "changes": page.changes,
                "failures": page.failures,
                "last_crawled_at": page.last_crawled_at,
                "last_attempt_at": page.last_attempt_at,
                "importance": page.importance,
                "status": int(page.is_removed),
            }
            for name, value in expected.items():
                if row[name] != value:
                    yield f"{url}: {name} is {row[name]}, not {value}"
            if not page.least_signals <= row["signal_count"] <= page.most_signals:
                yield (
                    f"{url}: {row['signal_count']} signals counted, not {page.least_signals} to "
                    f"{page.most_signals}"
                )

    return Finding.of("pages", "each event counts once", offenders(), pages=len(reference))


def _observed(facts: Facts, reference: dict[str, PageRecord]) -> Finding:
    """Crawl records in the database are those that the events come to."""
    urls = facts.database.urls
    actual = Counter(
        (urls[shard, page_id], at, changed)
        for shard, page_id, at, _, _, changed in facts.database.observations
    )
    expected = Counter(
        (page.url, at, changed)
        for page in reference.values()
        for at, _, changed in page.observations
    )
    lost = [f"not there: {one}" for one in sorted((expected - actual).elements())]
    doubled = [f"too often: {one}" for one in sorted((actual - expected).elements())]
    what = "each crawl is recorded once"
    return Finding.of("crawl records", what, lost + doubled, records=expected.total())


def _signals_arrived(ledger: Ledger, facts: Facts) -> Finding:
    """Every signal that was taken in goes on, but for those soon after one that did."""
    passed: dict[tuple[str, str], list[float]] = {}
    for signal in ledger.page_signals:
        passed.setdefault((signal.url, signal.source), []).append(signal.observed_at)
    least = ledger.settings.signal_debounce_seconds + 0.01 + _most_ahead(facts)
    lost = [
        f"{signal.url} of {signal.source} at {at - BEGINNING:.3f}"
        for at, signal in ledger.signals
        if not any(abs(one - at) <= least for one in passed.get((signal.url, signal.source), []))
    ]
    return Finding.of("signals", "signals are passed on", lost, signals=len(ledger.signals))


def _most_ahead(facts: Facts) -> float:
    """By how many seconds a clock is wrong at most."""
    steps = [abs(2 * f.detail - 1) for f in facts.plan.faults if f.kind == "clock"]
    return MOST_AHEAD_SECONDS * max(steps, default=0.0)


def _letters(ledger: Ledger, facts: Facts) -> Finding:
    """Dead letters are the bad messages, and all of them."""
    letters = [
        letter for letter in map(Letter.read, ledger.raw[DEAD_LETTERS.name]) if letter is not None
    ]
    found = {(one.topic, one.partition, one.original_offset) for one in letters}
    wrong = [
        f"{one.topic}/{one.partition} at {one.original_offset}: {one.error}"
        for one in letters
        if (one.topic, one.partition, one.original_offset) not in facts.truth.bad
    ]
    missing = [
        f"{place}: no letter"
        for place in sorted(facts.truth.bad - found)
        if place[0] in _SURELY_READ
    ]
    what = "dead letters are the bad messages, no others, and all of them"
    return Finding.of("dead letters", what, wrong + missing, letters=len(letters))


def _plan(ledger: Ledger) -> SlotTimeline:
    """The plans that hold, as everybody must have read them."""
    timeline = SlotTimeline()
    for record, message in decoded(Multipliers, ledger.raw[MULTIPLIERS.name]):
        if not is_late(message, appended_at(record)):
            timeline.add(SlotPlan.from_message(message))
    return timeline


def _slots(ledger: Ledger, facts: Facts) -> Finding:
    """Each request fills a slot of its shard; each slot is filled once, over all shards."""
    timeline = _plan(ledger)
    owners: dict[int, int] = {}
    for second in range(-2, int(facts.ended_at) + 3):
        begin = BEGINNING + second
        times, whose = timeline.between(begin, begin + 1.0)
        owners.update(zip((_micro(t) for t in times.tolist()), whose.tolist(), strict=True))

    def offenders() -> Iterator[str]:
        filled: Counter[int] = Counter()
        for asked in ledger.requests:
            at = _micro(asked.request.requested_at)
            near = next((owners[at + d] for d in (0, 1, -1) if at + d in owners), None)
            filled[at] += 1
            where = f"shard {asked.partition} at {asked.request.requested_at - BEGINNING:.6f}"
            if near is None:
                yield f"{where}: there is no such slot"
            elif near != asked.partition:
                yield f"{where}: the slot is shard {near}'s"
            if filled[at] > 1:
                yield f"{where}: the slot is filled twice"

    return Finding.of(
        "slots",
        "each request fills a slot of its shard, and each slot is filled once over all shards",
        offenders(),
        requests=len(ledger.requests),
        slots=len(owners),
    )


def _micro(seconds: float) -> int:
    return int((seconds - BEGINNING) * 1e6 + 0.5)


def _in_time(ledger: Ledger, facts: Facts) -> Finding:
    """The broker has a request soon after its slot, never long before or after."""
    scale = facts.plan.scale
    clock = _most_ahead(facts)
    latest = scale.session_seconds + 2.0 + clock
    late = [
        f"{asked.request.url}: slot {asked.request.requested_at - BEGINNING:.3f}, at the broker "
        f"{asked.written_at - BEGINNING:.3f}"
        for asked in ledger.requests
        if not -0.5 - clock <= asked.written_at - asked.request.requested_at <= latest
    ]
    return Finding.of("in time", "requests come soon after their slots", late)


def _asked_again(ledger: Ledger, facts: Facts) -> tuple[Finding, Finding]:
    """After the last fault every page is asked for again within its bound: where its shard had the
    slots for it, and everywhere."""
    scale, truth = facts.plan.scale, facts.truth
    until = BEGINNING + scale.seconds
    since = until - scale.bound_seconds
    last: dict[str, float] = {}
    for asked in ledger.requests:
        last[asked.request.url] = max(asked.written_at, last.get(asked.request.url, -math.inf))
    timeline = _plan(ledger)
    slots = [timeline.allotted(n, since, until) for n in range(scale.partitions)]
    pages = Counter(page.partition for page in truth.pages)
    forgotten: list[str] = []
    starved: list[str] = []
    for page in truth.pages:
        is_due = page.removed_at > facts.ended_at and BEGINNING + page.added_at < since
        at = last.get(page.url, -math.inf)
        if not is_due or at >= since:
            continue
        had = slots[page.partition]
        text = f"{page.url}: last asked for at {at - BEGINNING:.2f}; its shard had {had:.1f} slots"
        (forgotten if had >= 2 * pages[page.partition] else starved).append(text)
    return (
        Finding.of("forgotten", "every page is asked for again where there are slots", forgotten),
        Finding.of("starved", "every shard that has pages to crawl gets slots", starved),
    )


def _owned_once(facts: Facts) -> Finding:
    """Every shard has one scheduler, which is caught up."""
    offenders = []
    for number in range(facts.plan.scale.partitions):
        count = len(facts.shards.get(number, ()))
        if count != 1:
            offenders.append(f"shard {number} is in {count} schedulers")
        offenders += [
            f"shard {number} is not caught up"
            for shard in facts.shards.get(number, ())
            if not shard.is_caught_up
        ]
    return Finding.of("owners", "every shard has one scheduler, which is caught up", offenders)


def _memory(facts: Facts) -> Finding:
    """What a scheduler has in memory is what the database has, now that all is applied."""
    statements = Statements(facts.database)

    def offenders() -> Iterator[str]:
        for number, shards in sorted(facts.shards.items()):
            for shard in shards:
                fresh = build_shard(statements.load_shard("", number), shard.rules)
                yield from _differences(shard, fresh)

    return Finding.of("memory", "schedulers know what the database knows", offenders())


def _differences(shard: Any, fresh: Any) -> Iterator[str]:
    mine, stored = _by_url(shard), _by_url(fresh)
    for url in sorted(mine.keys() ^ stored.keys()):
        yield f"{url}: {'only in memory' if url in mine else 'not in memory'}"
    for url in sorted(mine.keys() & stored.keys()):
        one, other = mine[url], stored[url]
        for name, tolerance in _COMPARED.items():
            if not np.isclose(one[name], other[name], rtol=tolerance, atol=1e-9, equal_nan=True):
                yield f"{url}: {name} is {one[name]} in memory, {other[name]} in the database"
        host, known = _host_of(shard, one), _host_of(fresh, other)
        for name in ("rate", "blocked_until"):
            if host[name] != known[name]:
                yield f"{url}: its host's {name} is {host[name]}, {known[name]} in the database"


_COMPARED: Final = {
    "last_crawled_at": 0.0,
    "importance": 1e-6,
    "status": 0.0,
    "max_age": 1e-6,
    "kappa": _LEARNED_TOLERANCE,
    "gamma": _LEARNED_TOLERANCE,
    "signals": 2 * _LEARNED_TOLERANCE,
}
"""Columns, and by how much they may differ, relatively. α is not among them: a scheduler that hears
of a crawl goes by the burst multipliers that it knows then, the estimator by those that this very
crawl has changed."""


def _by_url(shard: Any) -> dict[str, Any]:
    pages = shard.pages[: shard.used]
    return {shard.url_of(row): pages[row] for row in range(shard.used) if pages[row]["status"] != 1}


def _host_of(shard: Any, page: Any) -> Any:
    return shard.hosts.rows[int(page["host"])]
