"""Two real coordinators: one leads; killed or stopped, the other goes on where it was."""

import asyncio
import contextlib
import itertools
import json
import time
import uuid

import pytest
from apache import ONCE
from workers import WorkerProcess, reader, settings_for, worker

from migrations.upgrade import migrate
from shared.contracts.codec import decode, encode
from shared.contracts.messages import Bandwidth, DemandCurve, Multipliers
from shared.contracts.topics import BANDWIDTH, DEMAND_CURVES, MULTIPLIERS
from shared.pacing.slots import SlotPlan, SlotTimeline, is_late
from shared.runtime.kafka import appended_at, ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings

pytestmark = pytest.mark.slow(10)

GRID = [10 ** (k / 8) for k in range(-24, 9)]


@contextlib.asynccontextmanager
async def system(broker, database_url):
    """Topics, tables, and shards that report twice a second."""
    await asyncio.to_thread(migrate, database_url, 4)
    settings = settings_for(
        broker.bootstrap_servers,
        f"two-{uuid.uuid4().hex[:8]}",
        silent_after_seconds=2.0,
        database_url=database_url,
    )
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    reporting = asyncio.ensure_future(report(publisher, {0: 1.0, 1: 3.0}))
    try:
        await publisher.send_global(BANDWIDTH, Bandwidth(20.0))
        yield publisher
    finally:
        reporting.cancel()
        await publisher.stop()


async def report(publisher, scales):
    while True:
        for shard, scale in scales.items():
            curve = DemandCurve(
                shard=shard,
                instance="scheduler-1",
                reported_at=time.time(),
                pages=1000,
                thresholds=GRID,
                demand=[scale * 10.0 / x**0.5 for x in GRID],
                ripe=[0.0] * len(GRID),
                achieved_crawls_per_second=scale * 10,
                host_limited_share=0.0,
                marginal_value=0.5,
            )
            await publisher.send(DEMAND_CURVES, str(shard).encode(), encode(curve))
        await asyncio.sleep(0.5)


def named(settings: Settings, name: str) -> Settings:
    return settings.model_copy(update={"instance": name})


async def state(process: WorkerProcess):
    return json.loads((await process.get("/state.json"))[1])


async def until(process: WorkerProcess, said, seconds=30.0):
    """Wait until the coordinator's state is as it should be."""
    found = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                found = await state(process)
                if said(found):
                    return found
                await asyncio.sleep(0.1)
    raise AssertionError(f"it never came to it: {found}\n{process.log}")


@contextlib.asynccontextmanager
async def two_coordinators(settings, tmp_path):
    """Two that are ready: the leader and the other."""
    with (
        worker("coordinator", named(settings, "one"), tmp_path) as one,
        worker("coordinator", named(settings, "two"), tmp_path) as two,
    ):
        await one.ready()
        await two.ready()
        leads = (await state(one))["leads"]
        leader, other = (one, two) if leads else (two, one)
        first = await until(leader, lambda s: s["leads"] and s["live_shards"] == 2)
        second = await until(other, lambda s: not s["leads"] and s["live_shards"] == 2)
        assert first["leader"] == second["leader"] == ("one" if leads else "two")
        yield leader, other


def messages(records):
    found = [(decode(Multipliers, record.value), appended_at(record)) for record in records]
    return [message for message, at in found if not is_late(message, at)]


def check_sequence(records):
    """What a scheduler makes of the topic: versions and slots that run on through all leaders."""
    timeline, taken = SlotTimeline(), []
    for message in messages(records):
        before = timeline.newest
        timeline.add(SlotPlan.from_message(message))
        if timeline.newest is not before:
            taken.append(message)
    for before, after in itertools.pairwise(taken):
        assert (after.epoch, after.version) > (before.epoch, before.version)
        assert after.version > before.version
        passed = before.crawls_per_second * (after.effective_at - before.effective_at)
        assert after.first_slot == pytest.approx(before.first_slot + passed, rel=1e-12)
    return taken


@ONCE
async def test_a_leader_that_is_killed_is_replaced_and_the_budget_goes_on(
    broker, database_url, tmp_path
):
    async with system(broker, database_url) as publisher:
        settings = publisher.settings
        async with (
            two_coordinators(settings, tmp_path) as (leader, other),
            reader(settings, MULTIPLIERS) as multipliers,
        ):
            leader.kill()
            await until(other, lambda s: s["leads"])
            await publisher.send_global(BANDWIDTH, Bandwidth(40.0))
            await multipliers.until(lambda got: got and messages(got)[-1].crawls_per_second == 40.0)
    taken = check_sequence(multipliers.records)
    assert [m.epoch for m in taken] == sorted(m.epoch for m in taken)
    takeover = next(m for m in taken if m.cause == "takeover")
    assert takeover.epoch > taken[0].epoch
    assert len({m.epoch for m in taken}) == 2
    assert {m.leader for m in taken} == {"one", "two"}
    assert sum(a.share for a in takeover.allotments) == pytest.approx(1.0)


@ONCE
async def test_a_leader_that_stood_still_follows_when_it_goes_on(broker, database_url, tmp_path):
    async with system(broker, database_url) as publisher:
        settings = publisher.settings
        async with (
            two_coordinators(settings, tmp_path) as (leader, other),
            reader(settings, MULTIPLIERS) as multipliers,
        ):
            leader.pause()
            second = (await until(other, lambda s: s["leads"]))["epoch"]
            await publisher.send_global(BANDWIDTH, Bandwidth(30.0))
            await multipliers.until(lambda got: got and messages(got)[-1].crawls_per_second == 30.0)
            leader.resume()
            said = await until(leader, lambda s: not s["leads"] and s["epoch"] == second)
            assert said["leader"] in {"one", "two"}
            await leader.ready()
            # ... and is there when it is needed.
            other.kill()
            await until(leader, lambda s: s["leads"] and s["epoch"] > second)
            await publisher.send_global(BANDWIDTH, Bandwidth(50.0))
            await multipliers.until(lambda got: got and messages(got)[-1].crawls_per_second == 50.0)
    taken = check_sequence(multipliers.records)
    assert taken[-1].crawls_per_second == 50.0
    assert len({m.epoch for m in taken}) == 3
    after = [m for m in taken if m.epoch == second]
    assert all(m.crawls_per_second in {20.0, 30.0} for m in after)


async def test_without_the_database_the_leader_goes_on_and_nobody_else_begins(
    local_broker, own_postgres, tmp_path
):
    async with system(local_broker, own_postgres.create_database("freshet")) as publisher:
        settings = publisher.settings
        async with (
            two_coordinators(settings, tmp_path) as (leader, other),
            reader(settings, MULTIPLIERS) as multipliers,
        ):
            await asyncio.to_thread(own_postgres.stop)
            await publisher.send_global(BANDWIDTH, Bandwidth(60.0))
            await multipliers.until(lambda got: got and messages(got)[-1].crawls_per_second == 60.0)
            await asyncio.sleep(4.0)
            assert (await state(leader))["leads"]
            assert not (await state(other))["leads"]
            assert (await leader.get("/readyz"))[0] == 200
            status, body = await other.get("/readyz")
            assert (status, b"who leads is not known" in body) == (503, True)
            await asyncio.to_thread(own_postgres.start)
            async with asyncio.timeout(30):
                while (await other.get("/readyz"))[0] != 200:
                    await asyncio.sleep(0.1)
            await publisher.send_global(BANDWIDTH, Bandwidth(70.0))
            await multipliers.until(lambda got: got and messages(got)[-1].crawls_per_second == 70.0)
    check_sequence(multipliers.records)
