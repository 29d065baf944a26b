"""Signals that the broker has not acknowledged: so many are kept, and no more."""

import asyncio
from types import SimpleNamespace

import pytest

from services.receiver import sending
from services.receiver.refusing import Refused
from services.receiver.sending import RETRY_SECONDS, Sender, bytes_of
from shared.runtime.acknowledging import Acknowledging
from shared.runtime.pings import FEW, Ping
from shared.runtime.settings import Settings


class Broker:
    """Acknowledges once it is let."""

    def __init__(self) -> None:
        self.settings = Settings()
        self.producer = SimpleNamespace(partitions_for=self.partitions_for)
        self.is_let = asyncio.Event()

    async def partitions_for(self, _):
        return {0}

    async def send_batches(self, messages, headers):
        await self.is_let.wait()


async def test_what_waits_for_the_broker_is_kept_after_its_sender_was_told_and_has_a_limit(
    monkeypatch,
):
    broker = Broker()
    sender = Sender(Settings(), broker, lambda: None, patience_seconds=0.01)
    pings = [Ping(f"https://a.example/{n}", "a.example") for n in range(FEW + 1)]
    monkeypatch.setattr(sending, "MOST_WAITING_BYTES", int(2.5 * bytes_of(pings)))
    for said in ("not acknowledged in time", "not acknowledged in time", "broker is behind"):
        with pytest.raises(Refused, match=said) as refused:
            await sender.send("indexnow", pings)
        assert (refused.value.status, refused.value.retry_seconds) == (503, RETRY_SECONDS)
    broker.is_let.set()
    await sender.stop()
    # What the broker has makes room; on a busy machine it takes longer than that to say so.
    sender._acknowledging = Acknowledging(10.0)
    await sender.send("indexnow", pings)
