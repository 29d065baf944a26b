"""Which signals are traced: a share, and of those that come traced no more than that."""

from collections import defaultdict
from random import Random

import pytest
from aiokafka import ConsumerRecord
from traced_spans import spans_to

from services.ingester.handler import SignalHandler
from services.ingester.traces import SignalTraces
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify
from shared.contracts.messages import PageSignal, Signal
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings
from shared.runtime.tracing import HEADER, Mark, Tracing, mark_in

NOW = 1_700_000_000.0
SHARDS = 4
HOSTILE = [
    b"",
    b"\xff" * 1000,
    b"00-" + b"0" * 32 + b"-" + b"0" * 16 + b"-01",
    b"00-" + b"a" * 5_000_000 + b"-01",
]


class Broker:
    """What a publisher would send."""

    def __init__(self):
        self.sent = defaultdict(list)
        self.fails = False

    async def partitions_of(self, topic):
        return SHARDS

    async def send_batches(self, messages, own):
        if self.fails:
            raise ValueError("it cannot be sent")
        assert set(own) <= set(messages)
        for place, part in messages.items():
            headers = own.get(place, {})
            self.sent[place] += [
                (decode(PageSignal, value), mark_in(headers.get(number, ())))
                for number, (_, value) in enumerate(part)
            ]

    async def dead_letter(self, record, stage, reason):
        pass

    async def flush(self):
        pass

    def marks(self):
        """Page → mark, of those that carry one."""
        told = [pair for part in self.sent.values() for pair in part]
        return {signal.page_id: mark for signal, mark in told if mark is not None}


@pytest.fixture
def broker():
    return Broker()


def any_number_of_spans(seed):
    return {"random": Random(seed), "spans_per_second": 1e9}


def handler(broker, share, seed=1, **more):
    spans = []
    more_of_it = any_number_of_spans(seed)
    made = Tracing(share, spans_to(spans), **more_of_it) if share else None
    settings = Settings(partitions=SHARDS, trace_share=share, **more)
    return SignalHandler(settings, ManualClock(NOW), broker, made), spans


def url_of(number):
    return f"https://host-{number % 7}.example/{number}"


def page_of(number):
    return identify(url_of(number)).page_id


def record(number, mark=None, value=None, source="cms"):
    value = encode(Signal(url_of(number), source, NOW)) if value is None else value
    headers = () if mark is None else ((HEADER, mark),)
    return ConsumerRecord(
        "signals", 0, number, int(NOW * 1000), 0, None, value, None, 0, 0, headers
    )


def header(number):
    [(_, value)] = Mark(number + 1, number + 1).headers()
    return value


async def test_nothing_carries_a_header_while_traces_are_off(broker):
    made, _ = handler(broker, 0.0)
    await made.handle([record(number, header(number)) for number in range(200)])
    assert sum(map(len, broker.sent.values())) == 200
    assert broker.marks() == {}


async def test_every_signal_is_traced_by_its_own_span_where_all_are(broker):
    made, spans = handler(broker, 1.0)
    await made.handle([record(number) for number in range(100)])
    assert {(page, mark.span_id) for page, mark in broker.marks().items()} == {
        (span.attributes["freshet.page_id"], span.context.span_id) for span in spans
    }
    assert len(spans) == 100
    assert len({span.context.trace_id for span in spans}) == 100
    assert {span.attributes["freshet.source"] for span in spans} == {"cms"}


async def test_a_header_goes_with_its_signal_where_others_are_refused_or_repeated(broker):
    made, spans = handler(broker, 1.0)
    good = [record(number, header(number)) for number in range(40)]
    bad = [record(99, header(n), value=b"?") for n in (50, 51)]
    await made.handle([bad[0], *good[:20], good[3], bad[1], *good[20:]])
    told = broker.marks()
    assert set(told) == {page_of(number) for number in range(40)}
    for span in spans:
        assert told[span.attributes["freshet.page_id"]].span_id == span.context.span_id
        if span.parent is not None:
            number = span.parent.span_id - 1
            assert span.attributes["freshet.page_id"] == page_of(number)


async def test_a_producers_own_trace_goes_on(broker):
    made, spans = handler(broker, 0.01)
    await made.handle([record(number, header(7) if number == 7 else None) for number in range(50)])
    mark = broker.marks()[page_of(7)]
    [span] = [span for span in spans if span.context.span_id == mark.span_id]
    assert mark.trace_id == span.context.trace_id == span.parent.trace_id == 8
    assert span.parent.span_id == 8


async def test_about_the_share_is_traced(broker):
    made, spans = handler(broker, 0.05)
    for begin in range(0, 8_000, 1_000):
        await made.handle([record(number) for number in range(begin, begin + 1_000)])
    assert len(spans) == len(broker.marks()) == pytest.approx(400, rel=0.2)


@pytest.mark.parametrize("size", [1, 40, 4_000])
def test_producers_that_sample_everything_get_half_of_the_share_at_most(size):
    records = [record(number, header(number)) for number in range(8_000)]
    pages = [identify(url_of(number)) for number in range(8_000)]
    signals = [PageSignal(page.page_id, page.url, page.host, "cms", NOW) for page in pages]
    traces = SignalTraces(Tracing(0.05, print, **any_number_of_spans(3)))
    begun = []
    for begin in range(0, 8_000, size):
        part = slice(begin, begin + size)
        headed = range(len(records[part]))
        begun += traces.begun(records[part], signals[part], headed, NOW).values()
    theirs = sum(span.parent is not None for span in begun)
    assert theirs == pytest.approx(200, abs=15)
    assert len(begun) == pytest.approx(400, rel=0.2)


def test_what_there_is_no_room_for_is_not_even_looked_at():
    traces = SignalTraces(Tracing(1.0, print, spans_per_second=0.0))
    page = identify(url_of(1))
    signals = [PageSignal(page.page_id, page.url, page.host, "cms", NOW)]
    assert traces.begun(["no record"], signals, [0], NOW) == {}


async def test_hostile_headers_harm_nothing(broker):
    made, spans = handler(broker, 1.0)
    records = [record(number, HOSTILE[number % len(HOSTILE)]) for number in range(40)]
    await made.handle(records)
    assert sum(map(len, broker.sent.values())) == 40
    assert all(span.parent is None for span in spans)


async def test_what_the_broker_does_not_take_is_not_seen(broker):
    made, spans = handler(broker, 1.0)
    broker.fails = True
    with pytest.raises(ValueError, match="cannot be sent"):
        await made.handle([record(1)])
    assert spans == []
