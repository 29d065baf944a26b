"""A worker that starts while a server is away says so, as one does that runs, and waits for it."""

import asyncio
import sys

import pytest
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from structlog.testing import capture_logs

from shared.runtime import retrying, worker
from shared.runtime.ending import naming_faults
from shared.runtime.settings import Settings
from shared.runtime.worker import WorkerService

PATIENCE_SECONDS = 30.0


class Starting(WorkerService):
    """Has nothing to do, and two servers that are watched."""

    def __init__(self):
        super().__init__(Settings())
        self.watched = asyncio.Event()
        self.is_open = False

    def _watches(self):
        return [self._watch(), self._watch()]

    async def _watch(self):
        self.watched.set()
        await asyncio.Event().wait()

    async def open(self):
        self.is_open = True

    async def close(self): ...

    def loops(self):
        return []

    def not_ready(self):
        return None if self.is_open else "waiting for the group"

    def progressed_at(self):
        return 0.0


@pytest.fixture
def starting(monkeypatch):
    async def nothing(*_):
        pass

    monkeypatch.setattr(worker.ClockOffset, "start", nothing)
    monkeypatch.setattr(worker.ClockOffset, "run", nothing)
    monkeypatch.setattr(worker.Watchdog, "start", lambda _: None)
    monkeypatch.setattr(retrying, "LONGEST_WAIT_SECONDS", 0.01)
    return Starting()


@pytest.fixture
def broker(monkeypatch):
    """What a look at the topics fails with, time after time; then it passes."""
    failures = []

    async def ensure_topics(_settings, *, patience_seconds):
        assert patience_seconds == 0.0
        await asyncio.sleep(0)
        if failures:
            raise failures[0]

    monkeypatch.setattr(worker, "ensure_topics", ensure_topics)
    return failures


async def says(service, reason):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while reason not in (service.trouble() or ""):
            await asyncio.sleep(0)


async def test_the_servers_are_watched_while_it_waits_for_one(starting, broker):
    broker.append(KafkaConnectionError("nobody is there"))
    start = asyncio.create_task(starting.on_start())
    await asyncio.wait_for(starting.watched.wait(), PATIENCE_SECONDS)
    await says(starting, "nobody is there")
    # A broker that is asked about a topic makes it, in its own way.
    assert not starting.broker.topics_are_there
    assert not starting.is_open
    broker.clear()
    await start
    assert starting.broker.topics_are_there
    assert starting.trouble() is None
    await starting.on_stop()


async def test_a_stop_ends_the_wait_and_the_watches(starting, broker):
    broker.append(KafkaConnectionError("nobody is there"))
    start = asyncio.create_task(starting.on_start())
    await says(starting, "nobody is there")
    await starting.on_stop()
    await asyncio.wait_for(start, PATIENCE_SECONDS)
    assert all(watch.done() for watch in starting._watching)
    assert not starting.is_open


async def test_what_no_waiting_helps_against_ends_it(starting, broker):
    broker.append(TopicAuthorizationFailedError("crawl-requests"))
    with pytest.raises(TopicAuthorizationFailedError):
        await starting.on_start()
    await starting.on_stop()


def ends(code):
    """As the framework ends a process: it closes all parts after the fault."""
    try:
        int("no number")
    except ValueError:
        worker.log.info("closed")
        sys.exit(code)


@pytest.mark.parametrize(("code", "last"), [(1, "ValueError: invalid literal"), (0, "closed")])
def test_the_last_line_of_a_worker_that_fails_names_the_fault(code, last):
    with capture_logs() as logs, pytest.raises(SystemExit, match=str(code)), naming_faults():
        ends(code)
    assert last in (logs[-1].get("fault") or logs[-1]["event"])
