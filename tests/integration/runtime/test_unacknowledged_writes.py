"""Brokers that answer and acknowledge no writes are waited for, and workers say so meanwhile."""

import asyncio
import time
from contextlib import contextmanager

import pytest
from aiokafka.errors import NotEnoughReplicasError
from aiokafka.producer.sender import SendProduceReqHandler
from group_member import until
from structlog.testing import capture_logs

from services.cli import kafka
from services.cli.errors import SystemFailed
from shared.contracts.messages import Bandwidth, HostLimit
from shared.contracts.topics import BANDWIDTH, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime import refused_batches, worker, write_watch
from shared.runtime.worker import WorkerService
from shared.runtime.write_watch import WriteWatch

pytestmark = pytest.mark.slow(3)


@pytest.fixture
def refusing(settings, monkeypatch):
    """The broker's answers are those of one that has too few copies of a topic in sync."""
    refused, writes = set(), WriteWatch()
    for module in (refused_batches, worker):
        monkeypatch.setattr(module, "WRITES", writes)
    take = SendProduceReqHandler.handle_response

    def answered(self, response):
        response.topics = [
            (name, [(p[0], NotEnoughReplicasError.errno, *p[2:]) for p in partitions])
            if name in refused
            else (name, partitions)
            for name, partitions in response.topics
        ]
        take(self, response)

    monkeypatch.setattr(SendProduceReqHandler, "handle_response", answered)

    @contextmanager
    def refuse(topic):
        refused.add(settings.topic(topic.name))
        yield
        refused.clear()

    return refuse


class Idle(WorkerService):
    """A worker whose loops have waited for an acknowledgement since the machine was started."""

    def __init__(self, settings):
        super().__init__(settings)
        self._loops = [asyncio.get_running_loop().create_future()]

    async def open(self): ...

    async def close(self): ...

    def loops(self):
        return []

    def not_ready(self):
        return None

    def progressed_at(self):
        return float("-inf")


async def test_a_worker_whose_writes_are_not_acknowledged_is_alive_and_not_ready(
    settings, publisher, refusing, monkeypatch
):
    monkeypatch.setattr(write_watch, "TOLD_SECONDS", 0.5)
    idle = Idle(settings)
    with capture_logs() as logs:
        with refusing(PAGE_SIGNALS):
            place = PAGE_SIGNALS.name, 0
            sending = asyncio.create_task(publisher.send_batches({place: [(b"k", b"v")]}))
            await until(lambda: idle.trouble() is not None)
            assert settings.topic(PAGE_SIGNALS.name) in idle.trouble()
            assert "min.insync.replicas" in idle.trouble()
            since = time.monotonic()
            await until(lambda: worker.WRITES.refused_at > since + 0.5)
            assert idle.silent_seconds() < 30.0
            assert not sending.done()
        await sending
    assert idle.trouble() is None
    told = [entry for entry in logs if "acknowledged" in entry["event"]]
    assert [entry["log_level"] for entry in told] == ["warning", "info"]


async def one_message(settings):
    await kafka.publish_global(settings, BANDWIDTH, Bandwidth(crawls_per_second=5.0))


async def one_of_a_host(settings):
    await kafka.publish_for_host(settings, HOST_LIMITS, "a.example", HostLimit("a.example"))


async def many_pages(settings):
    async with kafka.publishing(settings) as publisher:
        for _ in range(3):
            await publisher.queue_batches({(PAGE_UPDATES.name, 0): [(b"k", b"v")] * 2_000})


async def one_by_one(settings):
    async with kafka.publishing(settings) as publisher:
        for _ in range(1_000):
            await publisher.send(HOST_LIMITS, b"k", b"v" * 100, partition=0)


async def a_part_that_is_waited_for(settings):
    async with kafka.publishing(settings) as publisher:
        await publisher.send_batches({(PAGE_UPDATES.name, 0): [(b"k", b"v")]})


@pytest.mark.parametrize(
    ("send", "topic"),
    [
        (one_message, BANDWIDTH),
        (one_of_a_host, HOST_LIMITS),
        (many_pages, PAGE_UPDATES),
        (one_by_one, HOST_LIMITS),
        (a_part_that_is_waited_for, PAGE_UPDATES),
    ],
)
async def test_a_command_gives_up_what_is_not_acknowledged_and_says_so(
    settings, refusing, monkeypatch, send, topic
):
    monkeypatch.setattr(kafka, "ACKNOWLEDGED_SECONDS", 1.0)
    said = pytest.raises(SystemFailed, match=r"nothing for 1 s .*min\.insync\.replicas")
    with refusing(topic), said:
        async with asyncio.timeout(30):
            await send(settings)
    await send(settings)


async def test_a_command_takes_as_long_as_it_goes_on(settings, monkeypatch):
    """What it waits for between two messages is not the brokers'."""
    monkeypatch.setattr(kafka, "ACKNOWLEDGED_SECONDS", 0.5)
    async with kafka.publishing(settings) as publisher:
        for _ in range(3):
            await (await publisher.send(BANDWIDTH, b"k", b"v", partition=0))
            await asyncio.sleep(1.2)


async def test_what_was_waited_for_too_long_by_others_is_theirs(settings):
    with pytest.raises(TimeoutError):
        async with kafka.publishing(settings), asyncio.timeout(0.01):
            await asyncio.sleep(5)
