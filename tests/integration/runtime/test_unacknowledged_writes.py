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
from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH, PAGE_SIGNALS
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


async def test_a_command_gives_up_what_is_not_acknowledged_and_says_so(
    settings, refusing, monkeypatch
):
    monkeypatch.setattr(kafka, "ACKNOWLEDGED_SECONDS", 1.0)
    said = pytest.raises(SystemFailed, match=r"bandwidth within 1 s: .*min\.insync\.replicas")
    with refusing(BANDWIDTH), said:
        async with asyncio.timeout(30):
            await kafka.publish_global(settings, BANDWIDTH, Bandwidth(crawls_per_second=5.0))
    await kafka.publish_global(settings, BANDWIDTH, Bandwidth(crawls_per_second=6.0))
