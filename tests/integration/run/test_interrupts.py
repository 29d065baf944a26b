"""Ctrl-C while a run starts: what was started is stopped in order, however often it is pressed."""

import asyncio

import pytest

from services.run.errors import RunFailed
from services.run.options import RunOptions
from services.run.session import Session


class Run:
    """A session whose stack starts and stops as slowly as the test wants."""

    def __init__(self, folder, monkeypatch):
        self.session = Session(RunOptions("generated", folder), lambda _line: None, None)
        self.begun, self.stopping, self.may_stop = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.is_stopped = False
        stack = self.session.stack
        monkeypatch.setattr(stack, "start_servers", self.start)
        monkeypatch.setattr(stack, "stop", self.stop)

    async def start(self):
        self.begun.set()
        await asyncio.Event().wait()

    async def stop(self):
        self.stopping.set()
        await self.may_stop.wait()
        self.is_stopped = True


@pytest.fixture
def run(tmp_path, monkeypatch):
    return Run(tmp_path, monkeypatch)


async def test_a_second_ctrl_c_does_not_cut_the_stop_short(run):
    running = asyncio.create_task(run.session.run(lambda _session: None))
    await run.begun.wait()
    run.session._interrupt(running)
    await run.stopping.wait()
    run.session._interrupt(running)
    # The task is told of a cancellation in the loop's next turns.
    await asyncio.sleep(0.01)
    run.may_stop.set()
    assert await running is None
    assert run.is_stopped
    assert run.session.interrupted


async def test_ctrl_c_does_not_cut_the_stop_of_a_failed_start_short(run, monkeypatch):
    async def fails():
        raise RunFailed("the port is taken")

    monkeypatch.setattr(run.session.stack, "start_servers", fails)
    running = asyncio.create_task(run.session.run(lambda _session: None))
    await run.stopping.wait()
    run.session._interrupt(running)
    await asyncio.sleep(0.01)
    run.may_stop.set()
    with pytest.raises(RunFailed, match="the port is taken"):
        await running
    assert run.is_stopped
