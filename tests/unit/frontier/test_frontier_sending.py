"""What the broker has not acknowledged is kept, so much and no more."""

import asyncio

import pytest

from services.frontier import sending
from services.frontier.refusing import NotStored
from services.frontier.sending import Sender
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS

HOST = "a.example"


class Broker:
    """Acknowledges once it is let."""

    def __init__(self):
        self.is_let = asyncio.Event()

    async def send_for_host(self, *_):
        return asyncio.create_task(self.is_let.wait())


async def test_of_messages_that_wait_for_the_broker_there_is_a_limit(monkeypatch):
    monkeypatch.setattr(sending, "MOST_WAITING", 2)
    broker = Broker()
    sender = Sender(broker, lambda: None, patience_seconds=0.01)
    for said in ("not acknowledged in time", "not acknowledged in time", "broker is behind"):
        with pytest.raises(NotStored, match=said):
            await sender.send(HOST_LIMITS, HOST, HostLimit(HOST, 1.0))
    broker.is_let.set()
    await sender.stop()
    # What the broker has makes room.
    await Sender(broker, lambda: None).send(HOST_LIMITS, HOST, HostLimit(HOST, 1.0))
    await asyncio.sleep(0)
    assert len(sender._acknowledging) == 0
