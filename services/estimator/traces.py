"""The ends of traces: outcomes whose effects are committed."""

from collections.abc import Sequence

from aiokafka import ConsumerRecord

from services.estimator.decoding import Misplaced, Refused
from services.estimator.ordering import ShardRecords
from shared.contracts.codec import decode
from shared.contracts.identity import page_id_of
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.tracing import STORED, Mark, Traced, Tracing, traced_in
from shared.runtime.wall_time import WALL


def outcomes_traced_in(
    tracing: Tracing | None, records: ShardRecords
) -> list[tuple[ConsumerRecord, Mark]]:
    """Outcomes that are traced, and their marks, as many as there is room for. To be looked for
    before the batch is applied (`shared.runtime.tracing.marks_of`).

    Args:
        tracing: of the process; None: it is off.
        records: of the batch.
    """
    if tracing is None:
        return []
    outcomes = [topics.get(CRAWL_OUTCOMES.name, ()) for topics in records.values()]
    return traced_in(tracing, outcomes, WALL.now())


def note_stored(
    tracing: Tracing | None, traced: Traced[ConsumerRecord], left_out: Sequence[Refused | Misplaced]
) -> None:
    """Make the spans of outcomes that were just committed.

    Args:
        tracing: of the process; None: it is off.
        traced: those of the batch that are traced.
        left_out: what of the batch was not applied.
    """
    if tracing is None or not traced:
        return
    others, now = {id(one.record) for one in left_out}, WALL.now()
    for record, mark in traced:
        if id(record) in others:
            continue
        outcome = decode(CrawlOutcome, record.value)
        span = tracing.start(
            STORED,
            mark,
            record.timestamp / 1000,
            now,
            page_id=page_id_of(outcome.url),
            host=outcome.host,
            result=outcome.result or "digest",
        )
        if span is not None:
            span.end(now)
