"""The ends of traces: outcomes whose effects are committed."""

from collections.abc import Sequence

from services.estimator.decoding import Misplaced, Refused
from services.estimator.ordering import ShardRecords
from shared.contracts.codec import decode
from shared.contracts.identity import page_id_of
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.tracing import STORED, Tracing, marks_of
from shared.runtime.wall_time import WALL


def note_stored(
    tracing: Tracing | None, records: ShardRecords, left_out: Sequence[Refused | Misplaced]
) -> None:
    """Make the spans of outcomes that are traced; those without a header cost nothing.

    Args:
        tracing: of the process; None: it is off.
        records: of the batch that was just committed.
        left_out: those of them that were not applied.
    """
    if tracing is None:
        return
    others = {id(one.record) for one in left_out}
    for topics in records.values():
        outcomes = topics.get(CRAWL_OUTCOMES.name, ())
        for place, mark in marks_of(outcomes):
            record = outcomes[place]
            if id(record) in others:
                continue
            outcome, now = decode(CrawlOutcome, record.value), WALL.now()
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
