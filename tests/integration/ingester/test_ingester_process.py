"""The ingester as a process, on both brokers: what passes, what is set aside, and a crash."""

import asyncio
import json
import time
import uuid

import pytest
from apache import ONCE
from workers import reader, settings_for, worker

from shared.contracts.codec import decode, encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import PageSignal, Signal
from shared.contracts.topics import DEAD_LETTERS, PAGE_SIGNALS, SIGNALS
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher

pytestmark = [pytest.mark.slow(4), ONCE]

PARTITIONS = 4


@pytest.fixture
async def publisher(broker):
    settings = settings_for(broker.bootstrap_servers, f"ingester-{uuid.uuid4().hex[:8]}")
    await ensure_topics(settings)
    made = Publisher(settings)
    await made.start()
    yield made
    await made.stop()


def signal(number: int, host: int = 0) -> bytes:
    return encode(Signal(f"HTTP://host-{host}.example:80/{number}#part", "cms", time.time()))


def paths(records) -> list[int]:
    return sorted(int(decode(PageSignal, r.value).url.rpartition("/")[2]) for r in records)


async def test_signals_pass_on_their_hosts_shard_and_bad_ones_are_set_aside(publisher, tmp_path):
    settings = publisher.settings
    bad = [
        b"not json",
        b'{"url": 3, "source": "x"}',
        b'{"url": "https://a.example/", "source": "x", "observed_at": NaN}',
        b'{"url": "https://a.example/", "source": "x", "observed_at": 9e10}',
        b'{"url": "https://a.example/", "source": "x", "observed_at": 1}',
        b'{"url": "", "source": "x"}',
        b'{"url": "ftp://a.example/", "source": "x"}',
        b'{"url": "http://10.0.0.1/", "source": "x"}',
        b'{"url": "https://u:p@a.example/", "source": "x"}',
        b'{"url": "https://a.example/", "source": "a\\u0000"}',
        b'{"url": "https://a.example/' + b"a" * 100_000 + b'", "source": "x"}',
    ]
    for number in range(200):
        await publisher.send(SIGNALS, None, signal(number, number % 10), partition=number % 4)
    for value in bad:
        await publisher.send(SIGNALS, b"k", value)
    for _ in range(20):
        await publisher.send(SIGNALS, None, signal(7, 7), partition=3)
    with worker("ingester", settings, tmp_path) as process:
        await process.ready()
        async with (
            reader(settings, PAGE_SIGNALS) as signals,
            reader(settings, DEAD_LETTERS) as letters,
        ):
            await letters.until(lambda got: len(got) >= len(bad))
            await signals.until(lambda got: len(got) >= 200)
            status, metrics = await process.get("/metrics")
        assert status == 200
        assert b'freshet_ingester_signals_total{result="repeated"} 20.0' in metrics
    assert paths(signals.records) == list(range(200))
    for record in signals.records:
        message = decode(PageSignal, record.value)
        assert record.key == message.host.encode()
        assert record.partition == shard_of(message.host, PARTITIONS)
        assert message.url.startswith("http://host-")
    assert sorted(r.value for r in letters.records) == sorted(bad)
    for headers in (dict(record.headers) for record in letters.records):
        assert headers["stage"] == b"ingester"
        assert headers["topic"].decode() == settings.topic("signals")
        assert headers["error"]


SLOW = 1_500
"""Signals that come slowly: the first worker dies before the last one, on a busy machine too."""


async def test_a_crash_loses_nothing_and_a_clean_stop_repeats_nothing(publisher, tmp_path):
    settings = publisher.settings
    sending = asyncio.ensure_future(send_slowly(publisher, SLOW))
    async with reader(settings, PAGE_SIGNALS) as signals:
        with worker("ingester", settings, tmp_path) as process:
            await signals.until(lambda got: len(got) >= 100)
            process.kill()
        with worker("ingester", settings, tmp_path) as process:
            await sending
            await signals.until(lambda got: len(set(paths(got))) == SLOW)
            assert process.stop() == 0
        await publisher.send(SIGNALS, None, signal(SLOW))
        before = len(signals.records)
        with worker("ingester", settings, tmp_path) as process:
            await signals.until(lambda got: paths(got)[-1] == SLOW)
            assert len(signals.records) == before + 1
            await process.ready()
            assert process.stop() == 0
    assert json.loads(process.log.splitlines()[0])["worker"] == "ingester"


async def send_slowly(publisher: Publisher, count: int) -> None:
    for number in range(count):
        await publisher.send(SIGNALS, None, signal(number, number % 5), partition=number % 4)
        await asyncio.sleep(0.01)
