"""From a traced signal to the request that comes of it."""

from random import Random
from types import SimpleNamespace

import pytest
from aiokafka.producer.message_accumulator import BatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from reference_shard import DAY, rules, url_of
from traced_spans import spans_to

from services.scheduler.flow import traces
from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.slot_filler import SlotFiller, parted, take_back
from services.scheduler.flow.traces import PageTraces
from services.scheduler.picking.calendar import make_shard
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify
from shared.contracts.messages import (
    Allotment,
    CrawlRequest,
    Multipliers,
    PageSignal,
    PageUpdate,
)
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings
from shared.runtime.tracing import APPLIED, HEADER, REQUESTED, Mark, Tracing, mark_in

NOW = 1.7e9
PAGES = 40


@pytest.fixture
def shard():
    made = make_shard(0, rules(host_rate=1000.0))
    made.is_caught_up = True
    for page in range(PAGES):
        update = PageUpdate("upsert", address(page), crawled_at=NOW - 3 * DAY)
        made.upsert(url_of(f"h{page % 5}", page), update, NOW - DAY)
    return made


class Traced:
    """What a scheduler traces."""

    def __init__(self, share, **more):
        self.spans = []
        made = Tracing(share, spans_to(self.spans), random=Random(1), **more)
        self.pages = PageTraces(made)

    def apply(self, shard, signals):
        self.pages.applied(shard, self.pages.traced_in(signals))

    def named(self, name):
        return [span for span in self.spans if span.name == name]


def address(page):
    return url_of(f"h{page % 5}", page).url


def signal(page, mark=None):
    identity = identify(address(page))
    message = PageSignal(identity.page_id, identity.url, identity.host, "cms", NOW)
    headers = () if mark is None else tuple(mark.headers())
    return SimpleNamespace(value=encode(message), timestamp=int(NOW * 1000), headers=headers)


def fill(shard, traced, begin, slots):
    """Emissions of so many slots."""
    message = Multipliers(1, NOW, NOW, 0.0, 100.0, 0.0, [Allotment(0, 1.0)])
    timeline = SlotTimeline([SlotPlan.from_message(message)])
    filler = SlotFiller(load_settings(), ManualClock(NOW), {0: shard}, traced.pages)
    times, owners = timeline.between(NOW + begin / 100.0, NOW + (begin + slots) / 100.0)
    return filler.fill(times, owners, timeline.newest)


class Producer:
    """Keeps the records of batches as a broker would have them."""

    def __init__(self):
        self.records = []
        self.producer = self

    def create_batch(self):
        return BatchBuilder(16_384, 0)

    async def send_batch(self, batch, topic, partition):
        import asyncio

        batch.close()
        records = MemoryRecords(bytes(batch._build()))
        while records.has_next():
            self.records += list(records.next_batch())
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


async def sent(emissions):
    """Requests and their marks, as they stand on the topic."""
    producer = Producer()
    await Emitter(load_settings(), producer).send(emissions)
    told = [(decode(CrawlRequest, bytes(r.value)), mark_in(r.headers)) for r in producer.records]
    return {request.url: mark for request, mark in told}


async def test_the_request_of_a_page_follows_its_traced_signal_once(shard):
    traced = Traced(1e-9)
    traced.apply(shard, [signal(3), signal(4, Mark(77, 88)), signal(5)])
    [applied] = traced.named(APPLIED)
    assert applied.parent.span_id == 88
    first = await sent(fill(shard, traced, 0, PAGES))
    assert set(first) == {address(page) for page in range(PAGES)}
    assert [url for url, mark in first.items() if mark is not None] == [address(4)]
    [asked] = traced.named(REQUESTED)
    assert first[address(4)] == (77, asked.context.span_id)
    assert asked.parent.span_id == applied.context.span_id
    assert asked.attributes["freshet.page_id"] == identify(address(4)).page_id
    assert asked.attributes["freshet.reason"]
    assert asked.end_time >= asked.start_time
    assert traced.pages.asked_for(shard, fill(shard, traced, PAGES, 1)[0].picks[:0], []) == {}


async def test_the_first_traced_signal_of_a_page_counts_until_it_is_asked_for(shard):
    traced = Traced(1e-9)
    for trace in (5, 6, 7):
        traced.apply(shard, [signal(4, Mark(trace, 1))])
    told = await sent(fill(shard, traced, 0, PAGES))
    assert [mark.trace_id for mark in told.values() if mark is not None] == [5]


async def test_requests_begin_traces_of_their_own_by_the_share(shard):
    traced = Traced(0.25)
    told = await sent(fill(shard, traced, 0, PAGES))
    marks = [mark for mark in told.values() if mark is not None]
    assert len(marks) == pytest.approx(PAGES / 4, abs=1)
    assert {mark.span_id for mark in marks} == {s.context.span_id for s in traced.spans}
    assert all(span.parent is None for span in traced.spans)


async def test_signals_of_pages_that_nobody_knows_or_that_cannot_be_read_lead_to_nothing(shard):
    traced = Traced(1e-9)
    unknown = signal(PAGES + 1, Mark(1, 1))
    bad = SimpleNamespace(value=b"?", timestamp=0, headers=((HEADER, b"?"),))
    worse = SimpleNamespace(value=b"?", timestamp=0, headers=tuple(Mark(1, 1).headers()))
    traced.apply(shard, [unknown, bad, worse])
    assert traced.spans == []


async def test_the_memory_of_traced_pages_is_bounded_and_the_oldest_go(shard, monkeypatch):
    monkeypatch.setattr(traces, "MOST_PAGES", 3)
    traced = Traced(1e-9)
    traced.apply(shard, [signal(page, Mark(page + 1, 1)) for page in range(8)])
    told = await sent(fill(shard, traced, 0, PAGES))
    assert {url for url, mark in told.items() if mark is not None} == set(map(address, (5, 6, 7)))


async def test_requests_that_are_taken_back_are_not_seen_and_the_others_keep_their_marks(shard):
    traced = Traced(1.0)
    [emission] = fill(shard, traced, 0, PAGES)
    late, kept = parted(emission, NOW + 0.1)
    take_back(late)
    told = await sent([kept])
    assert set(told) == {decode(CrawlRequest, value).url for _, value in kept.messages}
    assert 0 < len(told) < PAGES
    seen = {span.attributes["freshet.page_id"]: span.context.span_id for span in traced.spans}
    assert {identify(url).page_id: mark.span_id for url, mark in told.items()} == seen


async def test_a_flood_of_traced_signals_makes_few_spans(shard):
    traced = Traced(1e-9, spans_per_second=2.0)
    traced.apply(shard, [signal(n % PAGES, Mark(n + 1, 1)) for n in range(500)])
    assert len(traced.spans) <= 6
    assert traced.apply(shard, ["no record"]) is None
    assert fill(shard, Traced(1.0, spans_per_second=0.0), 0, PAGES)[0].spans == {}
