"""The coordinator as a process, on both brokers: budget, shares, silence, restart, bad messages."""

import asyncio
import itertools
import json
import time
import uuid

import pytest
from apache import ONCE
from workers import reader, settings_for, worker

from shared.contracts.codec import decode, encode
from shared.contracts.layout import MOST_SHARDS
from shared.contracts.messages import Bandwidth, DemandCurve, Multipliers
from shared.contracts.topics import BANDWIDTH, DEAD_LETTERS, DEMAND_CURVES, GLOBAL_KEY, MULTIPLIERS
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.store.multipliers import last_multipliers

pytestmark = [pytest.mark.slow(4), ONCE]

GRID = [10 ** (k / 8) for k in range(-24, 9)]


def curve(shard: int, scale: float = 1.0) -> DemandCurve:
    return DemandCurve(
        shard=shard,
        instance="scheduler-1",
        reported_at=time.time(),
        pages=1000,
        thresholds=GRID,
        demand=[scale * 10.0 / x**0.5 for x in GRID],
        ripe=[0.0] * len(GRID),
        achieved_crawls_per_second=scale * 10,
        host_limited_share=0.1,
        marginal_value=0.5,
    )


@pytest.fixture
async def publisher(broker, migrated_url):
    settings = settings_for(
        broker.bootstrap_servers,
        f"coordinator-{uuid.uuid4().hex[:8]}",
        silent_after_seconds=2.0,
        database_url=migrated_url,
    )
    await ensure_topics(settings)
    made = Publisher(settings)
    await made.start()
    yield made
    await made.stop()


async def set_bandwidth(publisher: Publisher, rate: float) -> None:
    await publisher.send_global(BANDWIDTH, Bandwidth(rate))


class Shards:
    """Schedulers that report twice a second."""

    def __init__(self, publisher: Publisher, scales: dict[int, float]) -> None:
        self.scales = scales
        self._publisher = publisher
        self._task = asyncio.ensure_future(self._report())

    async def _report(self) -> None:
        while True:
            for shard, scale in self.scales.items():
                key = str(shard).encode()
                await self._publisher.send(DEMAND_CURVES, key, encode(curve(shard, scale)))
            await asyncio.sleep(0.5)

    def stop(self) -> None:
        self._task.cancel()


def recorded(settings):
    return last_multipliers(settings.database_url.get_secret_value(), 100)


def last(records) -> Multipliers:
    return decode(Multipliers, records[-1].value)


def shares(message: Multipliers) -> dict[int, float]:
    return {a.shard: round(a.share, 3) for a in message.allotments if a.share > 0}


async def test_budget_shares_silence_and_a_restart(publisher, tmp_path):
    settings = publisher.settings
    await set_bandwidth(publisher, 20.0)
    reporting = Shards(publisher, {0: 1.0, 1: 3.0})
    with worker("coordinator", settings, tmp_path) as process:
        await process.ready()
        async with reader(settings, MULTIPLIERS) as multipliers:
            await multipliers.until(lambda got: got and shares(last(got)) == {0: 0.25, 1: 0.75})
            # Σ D = 40/√λ = 20
            assert last(multipliers.records).multiplier == pytest.approx(4.0, rel=1e-3)

            began = time.time()
            await set_bandwidth(publisher, 40.0)
            await multipliers.until(lambda got: last(got).crawls_per_second == 40.0)
            changed = last(multipliers.records)
            assert changed.cause == "bandwidth"
            assert changed.effective_at - began < 2.0
            assert changed.multiplier == pytest.approx(1.0, rel=1e-3)

            del reporting.scales[1]
            await multipliers.until(lambda got: last(got).cause == "silent-shard")
            assert shares(last(multipliers.records)) == {0: 1.0}
            reporting.scales[1] = 3.0
            await multipliers.until(lambda got: last(got).cause == "new-shard")
            assert shares(last(multipliers.records)) == {0: 0.25, 1: 0.75}

            status, body = await process.get("/state.json")
            state = json.loads(body)
            assert status == 200
            assert state["now"]["bandwidth"] == 40.0
            # The database has four shards, of which two have no scheduler.
            assert (state["live_shards"], state["silent_shards"]) == (2, 2)
            assert [row["shard"] for row in state["shards"]] == [0, 1, 2, 3]
            assert (await process.get("/"))[0] == 200
    with worker("coordinator", settings, tmp_path) as process:
        await process.ready()
        async with reader(settings, MULTIPLIERS) as multipliers:
            await multipliers.until(
                lambda got: [1 for r in got if b'"cause":"takeover"' in r.value]
            )
            messages = [decode(Multipliers, r.value) for r in multipliers.records]
            async with asyncio.timeout(30):
                while "takeover" not in [row["cause"] for row in recorded(settings)]:
                    await asyncio.sleep(0.1)
    reporting.stop()
    rows = {row["version"]: row for row in recorded(settings)}
    for message in messages:
        if message.cause != "refresh" and message.version in rows:
            row = rows[message.version]
            assert (row["cause"], row["why"]) == (message.cause, message.why)
            # Nothing is ripe: the next slots buy what they do in the long run.
            assert row["slot_value"] is None or row["slot_value"] == pytest.approx(
                message.multiplier, rel=0.05
            )
            assert row["shares"] == pytest.approx(
                {a.shard: a.share for a in message.allotments if a.share > 0}, rel=1e-6
            )
    assert any(row["slot_value"] for row in rows.values())
    assert {"start", "bandwidth", "silent-shard", "new-shard", "takeover"} <= {
        row["cause"] for row in rows.values()
    }
    versions = [m.version for m in messages]
    assert versions == sorted(set(versions))
    assert shares(messages[-1]) == {0: 0.25, 1: 0.75}
    for before, after in itertools.pairwise(messages):
        passed = before.crawls_per_second * (after.effective_at - before.effective_at)
        assert after.first_slot == pytest.approx(before.first_slot + passed, rel=1e-12)


async def test_bad_messages_are_set_aside_and_change_nothing(publisher, tmp_path):
    settings = publisher.settings
    bad_budgets = [b"{", b'{"crawls_per_second": -1}', b'{"crawls_per_second": NaN}', b"[]"]
    bad_curves = [
        encode(curve(MOST_SHARDS)),
        b'{"shard": "x"}',
        encode(curve(0)).replace(b'"pages":1000', b'"pages":-1'),
        encode(curve(0)).replace(b'"thresholds":[', b'"thresholds":[1e9,'),
    ]
    await set_bandwidth(publisher, 20.0)
    reporting = Shards(publisher, {0: 1.0})
    with worker("coordinator", settings, tmp_path) as process:
        await process.ready()
        for value in bad_budgets:
            await publisher.send(BANDWIDTH, GLOBAL_KEY, value)
        for value in bad_curves:
            await publisher.send(DEMAND_CURVES, b"0", value)
        async with reader(settings, DEAD_LETTERS) as letters:
            found = await letters.until(lambda got: len(got) == len(bad_budgets + bad_curves))
        async with reader(settings, MULTIPLIERS) as multipliers:
            await multipliers.until(lambda got: got and shares(last(got)) == {0: 1.0})
            assert last(multipliers.records).crawls_per_second == 20.0
    reporting.stop()
    assert sorted(r.value for r in found) == sorted(bad_budgets + bad_curves)
    assert all(
        dict(r.headers)["error"] and dict(r.headers)["stage"] == b"coordinator" for r in found
    )


async def test_bad_messages_are_set_aside_once_however_often_coordinators_start(
    publisher, tmp_path
):
    settings = publisher.settings
    with worker("coordinator", settings, tmp_path) as process:
        await process.ready()
        for value in (b"1", b"2"):
            await publisher.send(BANDWIDTH, GLOBAL_KEY, value)
        async with reader(settings, DEAD_LETTERS) as letters:
            await letters.until(lambda got: len(got) == 2)
    # Nobody has seen this one, nor one that has its offset on another topic.
    for topic in (BANDWIDTH, DEMAND_CURVES):
        await publisher.send(topic, GLOBAL_KEY, b"3")
    await publisher.flush()
    for start in range(2):
        with worker("coordinator", settings, tmp_path) as process:
            await process.ready()
            last_one = f"start {start}".encode()
            await publisher.send(BANDWIDTH, GLOBAL_KEY, last_one)
            async with reader(settings, DEAD_LETTERS) as letters:
                found = await letters.until(
                    lambda got, last_one=last_one: last_one in [r.value for r in got]
                )
    values = [record.value for record in found]
    assert sorted(values) == [b"1", b"2", b"3", b"3", b"start 0", b"start 1"]


async def test_without_a_bandwidth_nothing_is_crawled_and_it_says_so(publisher, tmp_path):
    reporting = Shards(publisher, {0: 1.0})
    with worker("coordinator", publisher.settings, tmp_path) as process:
        await process.ready()
        async with reader(publisher.settings, MULTIPLIERS) as multipliers:
            await multipliers.until(lambda got: got and shares(last(got)) == {0: 1.0})
            assert last(multipliers.records).crawls_per_second == 0.0
        state = json.loads((await process.get("/state.json"))[1])
        assert "no bandwidth is set" in state["notice"]
        assert "no bandwidth is set" in process.log
    reporting.stop()
