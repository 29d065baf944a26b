"""Who begins to lead says so, then reads what was said before, and only then decides."""

import asyncio
from types import SimpleNamespace

import pytest
from coordination_run import running

from services.coordinator.worker import Coordinator
from shared.contracts.codec import decode
from shared.contracts.messages import Multipliers
from shared.contracts.topics import CLAIM_KEY, MULTIPLIERS
from shared.runtime.settings import Settings

EPOCH = 7


class Parts:
    """What a coordinator is made of, noting what is done with it."""

    def __init__(self):
        self.steps = []
        self.epoch = EPOCH
        self.said = None

    async def confirm(self):
        pass

    async def send(self, topic, key, value, *, partition):
        assert (topic, key, partition) == (MULTIPLIERS, CLAIM_KEY, 0)
        self.said = decode(Multipliers, value)
        return asyncio.create_task(self._stored())

    async def _stored(self):
        await asyncio.sleep(0)
        self.steps.append("the claim is stored")

    async def catch_up(self):
        self.steps.append("all before it is read")


@pytest.fixture
def parts():
    return Parts()


@pytest.fixture
def coordinator(parts, monkeypatch):
    """One that was elected, and has read what another one decided."""
    run = running()
    made = Coordinator(Settings())
    made._leadership = made._publisher = parts
    made._followers = {MULTIPLIERS.name: SimpleNamespace(catch_up=parts.catch_up)}
    made._coordination.receive_multipliers(run.published[-1], run.moment)
    lead = made._coordination.lead

    def leading(*given):
        parts.steps.append("it leads")
        lead(*given)

    monkeypatch.setattr(made._coordination, "lead", leading)
    return made


async def test_who_is_elected_claims_and_reads_before_it_leads(coordinator, parts):
    assert await coordinator._leads()
    assert parts.steps == ["the claim is stored", "all before it is read", "it leads"]
    assert (parts.said.cause, parts.said.epoch) == ("claim", EPOCH)
    assert await coordinator._leads()
    assert len(parts.steps) == 3, "once"
