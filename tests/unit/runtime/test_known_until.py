"""Up to when all is known that a broker had: not later than it was asked."""

import asyncio

from shared.contracts.topics import BANDWIDTH
from shared.runtime import follower as module
from shared.runtime.follower import Follower
from shared.runtime.settings import Settings


class Asking:
    """A consumer that asks."""

    async def start(self):
        pass

    async def stop(self):
        pass


async def test_what_a_late_answer_says_is_as_old_as_the_question(monkeypatch):
    """A process that stood still while it was on its way knows nothing of that time."""
    now, stopping = 100.0, asyncio.Event()

    async def end_of_log(_consumer, _partition):
        nonlocal now
        now += 30.0
        stopping.set()
        return 0

    monkeypatch.setattr(module, "make_consumer", lambda *_: Asking())
    monkeypatch.setattr(module, "end_of_log", end_of_log)
    monkeypatch.setattr(module, "steady", lambda: now)
    follower = Follower(Settings(), BANDWIDTH, lambda _record: None)
    await follower.keep_up(stopping)
    assert follower.known_at == 100.0
