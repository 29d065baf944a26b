"""What a leader does besides keeps no decision waiting."""

import asyncio

import pytest

from services.coordinator.worker import Coordinator
from shared.runtime.settings import Settings


class Turns:
    """Counts the decisions of a coordinator that leads."""

    def __init__(self, coordinator, monkeypatch):
        self.decided = 0
        self.looking = asyncio.Event()
        monkeypatch.setattr(coordinator, "_leads", self._leads)
        monkeypatch.setattr(coordinator, "_decide", self._decide)
        monkeypatch.setattr(coordinator._bad, "take", self._take)

    async def _leads(self):
        return True

    async def _decide(self):
        self.decided += 1

    async def _take(self, *_):
        self.looking.set()
        await asyncio.Event().wait()


@pytest.mark.slow(1)
async def test_while_it_looks_which_letters_there_are_the_next_decisions_are_made(monkeypatch):
    coordinator = Coordinator(Settings())
    turns = Turns(coordinator, monkeypatch)
    deciding = asyncio.ensure_future(coordinator._coordinate())
    async with asyncio.timeout(20):
        await turns.looking.wait()
        while turns.decided < 3:
            coordinator._wake.set()
            await asyncio.sleep(0.01)
    coordinator.stopping.set()
    coordinator._wake.set()
    await deciding
    await coordinator.close()
    assert coordinator._setting_aside.cancelled()
