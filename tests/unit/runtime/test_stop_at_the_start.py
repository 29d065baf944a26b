"""A worker that waits for a server when it is told to stop has not failed."""

import pytest

from shared.runtime import worker
from shared.runtime.settings import Settings
from shared.runtime.worker import WorkerService


class Waiting(WorkerService):
    async def open(self):
        await self.stopping.wait()
        raise ConnectionError("the database is not there")

    async def close(self): ...

    def loops(self):
        raise AssertionError("nothing is open")

    def not_ready(self): ...

    def progressed_at(self):
        return 0.0


@pytest.fixture
def waiting(monkeypatch):
    async def nothing(*_, **__):
        pass

    monkeypatch.setattr(worker, "ensure_topics", nothing)
    monkeypatch.setattr(worker.ClockOffset, "start", nothing)
    monkeypatch.setattr(worker.Watchdog, "start", lambda _: None)
    monkeypatch.setattr(Waiting, "_watches", lambda _: [])
    return Waiting(Settings())


async def test_what_it_waited_for_is_no_error_once_it_is_told_to_stop(waiting):
    waiting.stopping.set()

    await waiting.on_start()


async def test_what_fails_without_that_is(waiting, monkeypatch):
    async def refused(_):
        raise ConnectionError("refused")

    monkeypatch.setattr(Waiting, "open", refused)

    with pytest.raises(ConnectionError, match="refused"):
        await waiting.on_start()
