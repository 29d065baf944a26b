"""Signals that the broker has not acknowledged: so many are kept, and no more."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError

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

    async def send(self, *_, **__):
        return asyncio.create_task(self.is_let.wait())

    async def send_batches(self, messages, headers):
        await self.is_let.wait()


@pytest.mark.parametrize("count", [1, FEW + 1], ids=["one ping", "many"])
async def test_pings_are_answered_when_they_are_stored(count):
    broker = Broker()
    sender = Sender(Settings(), broker, lambda: None, patience_seconds=0.05)
    pings = [Ping(f"https://a.example/{n}", "a.example") for n in range(count)]
    with pytest.raises(Refused, match="not acknowledged in time"):
        await sender.send("indexnow", pings)
    broker.is_let.set()
    await sender.stop()


async def test_what_the_broker_refuses_makes_room_as_well(monkeypatch):
    broker = Broker()
    sender = Sender(Settings(), broker, lambda: None)
    pings = [Ping(f"https://a.example/{n}", "a.example") for n in range(FEW + 1)]
    monkeypatch.setattr(sending, "MOST_WAITING_BYTES", int(2.5 * bytes_of(pings)))
    works = broker.send_batches

    async def fails(messages, headers):
        raise KafkaConnectionError

    broker.send_batches = fails
    for _ in range(5):
        with pytest.raises(Refused, match="KafkaConnectionError"):
            await sender.send("indexnow", pings)
    broker.send_batches = works
    broker.is_let.set()
    await sender.send("indexnow", pings)


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
