"""The ends of traces: outcomes whose effects are committed."""

from collections.abc import Sequence
from itertools import islice

from aiokafka import ConsumerRecord

from services.estimator.decoding import Misplaced, Refused
from services.estimator.ordering import ShardRecords
from shared.contracts.codec import decode
from shared.contracts.identity import page_id_of
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.tracing import STORED, Mark, Tracing, marks_of
from shared.runtime.wall_time import WALL

Traced = list[tuple[ConsumerRecord, Mark]]


def traced_in(tracing: Tracing | None, records: ShardRecords) -> Traced:
    """Outcomes that are traced, and their marks, as many as there is room for.

    To be looked for before a batch is applied: who reads all records first has them brought into
    the processor's cache for the others, and afterwards they are not there any more.

    Args:
        tracing: of the process; None: it is off.
        records: of the batch.
    """
    room = tracing.room(WALL.now()) if tracing is not None else 0
    found: Traced = []
    for topics in records.values() if room else ():
        outcomes = topics.get(CRAWL_OUTCOMES.name, ())
        marks = islice(marks_of(outcomes), room - len(found))
        found += [(outcomes[place], mark) for place, mark in marks]
    return found


def note_stored(
    tracing: Tracing | None, traced: Traced, left_out: Sequence[Refused | Misplaced]
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
