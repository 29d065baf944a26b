"""Records over which the scheduler's code stumbles: set aside, and the others count once."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import TopicAuthorizationFailedError
from reference_shard import rules

from services.scheduler.flow import reader as reading
from services.scheduler.flow.applying import apply_in_pieces
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.reader import Reader
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import PageSignal, PageUpdate
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import ManualClock
from shared.runtime.isolation import TooManyBadMessages
from shared.runtime.settings import Settings

NOW = 1.7e9
PAGES = [identify(f"https://a.example/{n}") for n in range(300)]
POISON = {17, 18, 299}


@pytest.fixture
def shard():
    shard = make_shard(0, rules(host_rate=2.0))
    for page in PAGES:
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=NOW - 1000), NOW - 1000)
    return shard


def record(number, message):
    return SimpleNamespace(
        value=encode(message),
        key=b"a.example",
        timestamp=int(NOW * 1000),
        offset=number,
        topic="t",
    )


def reader():
    return Reader(Acceptance(NOW + 5, NOW + 300, record_times_count=True))


def test_signals_around_those_that_always_fail_count_once(shard, monkeypatch):
    # After its effects: what a piece had done before it failed must not be done twice.
    apply = Shard.signals

    def stumble(self, page_ids, *rest):
        unknown = apply(self, page_ids, *rest)
        if {PAGES[n].page_id for n in POISON} & set(page_ids.tolist()):
            raise ZeroDivisionError("nobody thought of this")
        return unknown

    monkeypatch.setattr(Shard, "signals", stumble)
    signals = [
        record(n, PageSignal(page.page_id, page.url, page.host, "s", NOW))
        for n, page in enumerate(PAGES)
    ]
    told = reader()
    apply_in_pieces(told, shard, "page-signals", signals)
    assert [letter.record.offset for letter in told.refused] == sorted(POISON)
    assert all("ZeroDivisionError" in letter.reason for letter in told.refused)
    once = shard.pages["signals"][: shard.used]
    assert once.min() == once.max() > 0


def test_bad_records_beside_them_are_refused_once(shard, monkeypatch):
    def stumble(self, *_):
        raise ZeroDivisionError

    monkeypatch.setattr(Shard, "parameters", stumble)
    bad = [SimpleNamespace(value=b"?", key=b"", timestamp=0, offset=n, topic="t") for n in range(3)]
    told = reader()
    apply_in_pieces(told, shard, reading.PAGE_PARAMETERS.name, bad)
    assert sorted(letter.record.offset for letter in told.refused) == [0, 1, 2]


async def test_shards_that_are_not_kept_up_are_forgotten(shard):
    settings = Settings(partitions=1, bad_messages_least=20)
    told = []

    async def dead_letter(*letter):
        told.append(letter)
        stored = asyncio.get_running_loop().create_future()
        stored.set_result(None)
        return stored

    thread = ShardThread()
    publisher = SimpleNamespace(dead_letter=dead_letter)
    handler = SchedulerHandler(settings, ManualClock(NOW), publisher, thread)
    handler.shards[0] = shard

    def bad(count):
        records = [
            SimpleNamespace(value=b"?", key=b"", timestamp=0, offset=n, topic="page-parameters")
            for n in range(count)
        ]
        return {"page-parameters": {0: records}}

    await handler.handle(bad(19))
    assert len(told) == 19
    assert handler.shards
    with pytest.raises(TooManyBadMessages, match="page-parameters"):
        await handler.handle(bad(10))
    assert len(told) == 19
    assert handler.shards == {}
    thread.close()


async def test_a_batch_is_not_done_before_the_broker_has_its_dead_letters(shard):
    """It is read again then by whoever has the shard next, and the letter is written."""

    async def dead_letter(*_letter):
        refused = asyncio.get_running_loop().create_future()
        refused.set_exception(TopicAuthorizationFailedError("dead-letters"))
        return refused

    thread = ShardThread()
    publisher = SimpleNamespace(dead_letter=dead_letter)
    handler = SchedulerHandler(Settings(partitions=1), ManualClock(NOW), publisher, thread)
    handler.shards[0] = shard
    bad = SimpleNamespace(value=b"?", key=b"", timestamp=0, offset=7, topic="page-parameters")
    with pytest.raises(TopicAuthorizationFailedError):
        await handler.handle({"page-parameters": {0: [bad]}})
    thread.close()
