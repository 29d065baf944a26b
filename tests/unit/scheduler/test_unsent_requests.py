"""A request that the broker does not have yet is not written down as one that nobody answers."""

import asyncio

from test_slot_filling import NOW, FakePublisher, Producer, make_shards, timeline

from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.slot_filler import SlotFiller
from services.scheduler.flow.unanswered_pages import UnansweredWriter
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings

TIMEOUT = load_settings().request_timeout_seconds


class SlowProducer(Producer):
    """Its broker acknowledges batches when it is told to."""

    def __init__(self):
        super().__init__()
        self.waiting = []

    async def send_batch(self, batch, topic, *, partition):
        self.waiting.append(asyncio.get_running_loop().create_future())
        return self.waiting[-1]


class Inline:
    """The shards' thread, at once."""

    async def run(self, work, *given):
        return work(*given)


async def test_what_is_on_its_way_to_a_broker_that_is_away_is_written_once_it_has_come(monkeypatch):
    publisher = FakePublisher()
    publisher.producer = producer = SlowProducer()
    emitter = Emitter(load_settings(), publisher)
    shards, slots, clock = make_shards(count=1), timeline(8.0, shards=1), ManualClock(NOW)
    writer = UnansweredWriter(
        load_settings(), Inline(), lambda: shards, clock, emitter.unsent_since
    )
    written = []
    monkeypatch.setattr(writer, "_write", lambda news: written.extend(news[0].pages.page_ids))

    filler = SlotFiller(load_settings(), clock, shards)
    first, second = (
        filler.fill(*slots.between(begin, begin + 1.0), slots.newest) for begin in (NOW, NOW + 1.0)
    )
    asked = sum(len(one.messages) for one in first)
    await emitter.send(first)
    for came in producer.waiting:
        came.set_result(None)
    await asyncio.sleep(0)
    await emitter.send(second)
    clock.advance(TIMEOUT + 60.0)
    await writer._write_some()
    assert len(written) == asked > 0
    for came in producer.waiting:
        came.done() or came.set_result(None)
    await asyncio.sleep(0)
    await writer._write_some()
    assert len(written) == asked + sum(len(one.messages) for one in second) > asked
