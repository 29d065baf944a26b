"""The end of a trace: an outcome that was committed, and no other."""

from random import Random

import pytest
from aiokafka import ConsumerRecord
from traced_spans import spans_to

from services.estimator.decoding import Misplaced, Refused
from services.estimator.traces import note_stored, outcomes_traced_in
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome
from shared.runtime.tracing import STORED, Mark, Tracing

NOW = 1.7e9
PAGE = identify("https://a.example/1")


@pytest.fixture
def spans():
    return []


@pytest.fixture
def tracing(spans):
    return Tracing(0.01, spans_to(spans), random=Random(1))


def outcome(mark=None, result="changed", **more):
    headers = () if mark is None else tuple(mark.headers())
    value = encode(CrawlOutcome(PAGE.url, NOW, PAGE.host, "r", result, **more))
    return ConsumerRecord(
        "crawl-outcomes", 0, 0, int(NOW * 1000), 0, None, value, None, 0, 0, headers
    )


def test_an_outcome_that_carries_a_mark_ends_its_trace(tracing, spans):
    records = [outcome(), outcome(Mark(5, 6)), outcome(Mark(7, 8), None, digest="d"), outcome()]
    batch = {0: {"crawl-outcomes": records[:2]}, 1: {"crawl-outcomes": records[2:]}}
    note_stored(tracing, outcomes_traced_in(tracing, batch), [])
    assert [(span.name, span.parent.trace_id, span.parent.span_id) for span in spans] == [
        (STORED, 5, 6),
        (STORED, 7, 8),
    ]
    assert [span.attributes["freshet.result"] for span in spans] == ["changed", "digest"]
    assert {span.attributes["freshet.page_id"] for span in spans} == {PAGE.page_id}
    assert all(span.end_time >= span.start_time for span in spans)


def test_what_was_refused_or_passed_on_was_not_committed_here(tracing, spans):
    bad, elsewhere, good = outcome(Mark(1, 1)), outcome(Mark(2, 2)), outcome(Mark(3, 3))
    left_out = [Refused(bad, "unknown page"), Misplaced(elsewhere, 4)]
    traced = outcomes_traced_in(tracing, {0: {"crawl-outcomes": [bad, elsewhere, good]}})
    note_stored(tracing, traced, left_out)
    assert [span.parent.trace_id for span in spans] == [3]


def test_other_topics_and_no_traces_at_all_are_nothing(tracing, spans):
    assert outcomes_traced_in(tracing, {0: {"page-signals": [outcome(Mark(1, 1))]}}) == []
    assert outcomes_traced_in(None, {0: {"crawl-outcomes": [outcome(Mark(1, 1))]}}) == []
    note_stored(None, [], [])
    assert spans == []


def test_what_there_is_no_room_for_is_not_even_looked_at(spans):
    tracing = Tracing(0.01, spans_to(spans), spans_per_second=1.5)
    marked = [outcome(Mark(n, n)) for n in range(1, 8)]
    traced = outcomes_traced_in(
        tracing, {0: {"crawl-outcomes": marked[:2]}, 1: {"crawl-outcomes": marked}}
    )
    assert [mark.trace_id for _, mark in traced] == [1, 2, 1]
    note_stored(tracing, traced, [])
    assert len(spans) == 3
    assert outcomes_traced_in(tracing, {0: {"crawl-outcomes": ["no record"]}}) == []
