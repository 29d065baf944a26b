"""What stands on the topics and in the tables when a simulation ends, and what of it must count."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, TypeVar

from aiokafka import ConsumerRecord
from msgspec import Struct

from services.verify.ledger import Answered, Asked, Ledger, Page
from services.verify.records import decoded
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.facts import Facts, Gap
from services.verify.simulation.kafka.broker import Partition
from services.verify.simulation.passed_on import is_passed_on
from services.verify.simulation.reference import PageRecord, page_records
from services.verify.simulation.workers import settings_of
from shared.contracts.messages import CrawlOutcome, CrawlRequest, PageSignal, PageUpdate, Signal
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
    Topic,
)

M = TypeVar("M", bound=Struct)

READ_SECONDS: Final = 0.01
"""What can be read for so long is."""


def ledger_of(facts: Facts) -> Ledger:
    """Everything on the topics and in the tables, as `freshet verify` reads it."""
    return _ledger(facts, lambda _: False)


def counted_of(facts: Facts) -> Ledger:
    """The same without what counts elsewhere, as it was passed on there."""
    return _ledger(facts, lambda record: is_passed_on(facts, record))


def _ledger(facts: Facts, is_left_out: Callable[[ConsumerRecord], bool]) -> Ledger:
    broker, database = facts.broker, facts.database
    settings = settings_of(
        facts.plan.scale.processes()[0], facts.plan.scale, facts.plan.weather.resident_pages
    )
    told = {
        name: [one for log in logs for one in log.history() if not is_left_out(one[0])]
        for name, logs in broker.topics.items()
    }
    raw = {name: [record for record, _ in records] for name, records in told.items()}
    written_at = {id(record): BEGINNING + at for records in told.values() for record, at in records}

    def at(record: Any) -> float:
        return written_at[id(record)]

    asked = [
        Asked(message, record.partition, record.offset, at(record))
        for record, message in decoded(CrawlRequest, raw[CRAWL_REQUESTS.name])
    ]
    asked.sort(key=lambda one: one.request.requested_at)
    return Ledger(
        settings=settings,
        layout=database.layout,
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


def sure_of(ledger: Ledger, facts: Facts) -> Ledger:
    """Without the pages of which nobody knows whether all about them was read: some of it was lost,
    or an estimator has said that it is gone (another one may have read it before)."""
    unsure = facts.unsure()
    pages = [page for page in ledger.pages if page.url not in unsure]
    return replace(ledger, pages=pages)


def late_crawls(ledger: Ledger) -> set[str]:
    """URLs of pages of which a crawl stands on the topic behind one that seems to be later.

    It is so where a crawler whose clock is behind answers a request when the next one is answered
    already: whether the crawl counts goes by whether both are read in one batch.
    """
    found: set[str] = set()
    known: dict[str, list[float]] = defaultdict(list)
    for answered in ledger.outcomes:
        outcome = answered.outcome
        times = known[outcome.url]
        if times and outcome.crawled_at < max(times) and outcome.crawled_at not in times:
            found.add(outcome.url)
        times.append(outcome.crawled_at)
    return found


def reference_of(ledger: Ledger, facts: Facts) -> dict[str, PageRecord]:
    """What the pages should be: URL → what is known of it."""
    updates = [message for _, message in decoded(PageUpdate, ledger.raw[PAGE_UPDATES.name])]
    return page_records(
        sorted([*updates, *facts.truth.imported], key=lambda update: update.updated_at or 0.0),
        ledger.page_signals,
        [answered.outcome for answered in ledger.outcomes],
        _early(facts),
    )


def _early(facts: Facts) -> set[PageSignal]:
    """Signals that could be read before their pages' updates, which stood in a transaction that was
    not ended, or had no leader."""
    known: dict[str, float] = {}
    for at, update in _readable(PageUpdate, facts, PAGE_UPDATES):
        known[update.url] = min(at, known.get(update.url, math.inf))
    return {
        signal
        for at, signal in _readable(PageSignal, facts, PAGE_SIGNALS)
        if at < known.get(signal.url, -math.inf)
    }


def appended(kind: type[M], log: Partition) -> Iterator[tuple[float, ConsumerRecord, M]]:
    """Messages of all records that a partition ever had, with when these came; virtual seconds."""
    history = log.history()
    times = {id(record): at for record, at in history}
    for record, message in decoded(kind, [record for record, _ in history]):
        yield times[id(record)], record, message


def _readable(kind: type[M], facts: Facts, topic: Topic) -> Iterator[tuple[float, M]]:
    """Messages, and from when on they could be read; virtual seconds."""
    for log in facts.broker.topics[topic.name]:
        for at, record, message in appended(kind, log):
            if not is_passed_on(facts, record):
                yield log.read_from(at, READ_SECONDS), message


def signals_that_count(
    ledger: Ledger, facts: Facts
) -> Iterator[tuple[float, ConsumerRecord, Signal]]:
    """Those that the ingesters have not said are gone, with when they came."""
    records = decoded(Signal, ledger.raw[SIGNALS.name])
    for (at, signal), (record, _) in zip(ledger.signals, records, strict=True):
        if Gap("ingester", record.topic, record.partition, record.offset) not in facts.gaps:
            yield at, record, signal
