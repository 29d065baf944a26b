"""Batches of signals, without a broker: where they go, and those that nobody foresaw."""

from collections import defaultdict

import pytest
from aiokafka import ConsumerRecord
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)

from services.ingester import sifting
from services.ingester.handler import SignalHandler
from services.ingester.refusals import LETTER_BYTES, LETTERS_AT_ONCE
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageSignal, Signal
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings

NOW = 1_700_000_000.0
SHARDS = 4


class Broker:
    """What a publisher would send."""

    def __init__(self):
        self.sent = defaultdict(list)
        self.letters = []
        self.failures = []

    async def partitions_of(self, topic):
        return SHARDS

    async def send_batches(self, messages, own):
        if self.failures:
            raise self.failures.pop()
        for place, part in messages.items():
            self.sent[place] += part

    async def dead_letter(self, record, stage, reason):
        self.letters.append((record.offset, stage, reason))

    async def flush(self):
        pass


@pytest.fixture
def broker():
    return Broker()


@pytest.fixture
def handler(broker):
    return SignalHandler(Settings(partitions=SHARDS // 2), ManualClock(NOW), broker)


def record(number, value, headers=()):
    return ConsumerRecord(
        "signals", 0, number, int(NOW * 1000), 0, None, value, None, 0, 0, headers
    )


def signal(number):
    return encode(Signal(f"https://host-{number % 7}.example/{number}", "cms", NOW))


def numbers(broker):
    return sorted(
        int(decode(PageSignal, value).url.rpartition("/")[2])
        for part in broker.sent.values()
        for _, value in part
    )


async def test_signals_go_to_their_hosts_shards_and_bad_ones_aside(handler, broker):
    records = [record(n, signal(n)) for n in range(50)]
    records[10] = record(10, b"?")
    await handler.handle(records)
    assert numbers(broker) == [n for n in range(50) if n != 10]
    assert [(offset, stage) for offset, stage, _ in broker.letters] == [(10, "ingester")]
    for (_, shard), part in broker.sent.items():
        for key, value in part:
            assert shard == shard_of(decode(PageSignal, value).host, SHARDS)
            assert key == decode(PageSignal, value).host.encode()


async def test_a_signal_that_nobody_foresaw_is_set_aside_and_the_others_pass_once(
    handler, broker, monkeypatch
):
    def stumble(url):
        if url.endswith(("/123", "/124", "/999")):
            raise ZeroDivisionError("nobody thought of this")
        return identify(url)

    monkeypatch.setattr(sifting, "identify", stumble)
    handler.progressed_at = 0.0
    await handler.handle([record(n, signal(n)) for n in range(1000)])
    assert handler.progressed_at > 0.0, "or a watchdog would end it while it looks for them"
    assert numbers(broker) == [n for n in range(1000) if n not in {123, 124, 999}]
    assert [offset for offset, _, _ in broker.letters] == [123, 124, 999]
    assert all("ZeroDivisionError" in reason for _, _, reason in broker.letters)


async def test_a_broker_that_is_away_is_tried_again_and_nothing_counts_as_repeated(handler, broker):
    broker.failures = [KafkaTimeoutError(), KafkaConnectionError("gone")]
    await handler.handle([record(n, signal(n)) for n in range(50)])
    assert numbers(broker) == list(range(50))


async def test_a_broker_that_refuses_is_not_tried_again(handler, broker):
    broker.failures = [TopicAuthorizationFailedError()]
    with pytest.raises(TopicAuthorizationFailedError):
        await handler.handle([record(0, signal(0))])


async def test_dead_letters_wait_for_a_broker_that_is_away(handler, broker, monkeypatch):
    said = []

    async def flush():
        if len(said) < 2:
            said.append(handler.trouble)
            raise KafkaTimeoutError()

    monkeypatch.setattr(broker, "flush", flush)
    await handler.handle([record(0, b"rubbish")])

    assert said[0] is None
    assert "the broker cannot be written" in said[1]
    assert handler.trouble is None
    assert {letter[0] for letter in broker.letters} == {0}


async def test_refused_signals_with_large_headers_take_no_more_of_the_disk(handler, broker):
    large = (("rubbish", bytes(15 * LETTER_BYTES)),)
    await handler.handle([record(n, b"?", large) for n in range(1000)])
    assert 50 < len(broker.letters) < 100


async def test_how_many_refused_ones_are_kept_holds_from_the_moment_it_is_set(broker):
    none, all_ = (
        Settings(partitions=SHARDS // 2, refused_signals_kept_per_second=rate)
        for rate in (0.0, 1e12)
    )
    handler = SignalHandler(none, ManualClock(NOW), broker)
    flood = [record(n, b"?") for n in range(int(LETTERS_AT_ONCE) + 100)]
    await handler.handle(flood)
    assert len(broker.letters) == LETTERS_AT_ONCE
    handler.take_settings(all_)
    await handler.handle(flood[:50])
    assert len(broker.letters) == LETTERS_AT_ONCE + 50
