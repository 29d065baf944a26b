"""Machines whose clocks are wrong, or are set: all workers go by the broker's time."""

import asyncio
import contextlib
import math
import time
import uuid

import numpy as np
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from page_batches import page_batch
from workers import reader, settings_for, worker

from migrations.upgrade import migrate
from shared.contracts.codec import decode
from shared.contracts.messages import Bandwidth, CrawlRequest
from shared.contracts.topics import BANDWIDTH, CLOCK, CRAWL_REQUESTS
from shared.runtime.clock_offset import ClockOffset
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.wall_time import WallTime
from shared.store.imports import import_pages

HOUR = 3600.0
RATE = 20
SHARDS = 4
HOSTS = 40
PAGES = 2000
NEAR_SECONDS = 0.2
"""As near to the broker's time as workers must be."""


@pytest.fixture
async def settings(broker):
    settings = settings_for(broker.bootstrap_servers, f"clocks-{uuid.uuid4().hex[:8]}")
    await ensure_topics(settings, (CLOCK,))
    return settings


@pytest.fixture(params=[HOUR, -HOUR, 0.0])
def off(request, monkeypatch):
    """By how many seconds this machine's clock is ahead."""
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + request.param)
    return request.param


async def test_a_process_goes_by_the_brokers_time(settings, off):
    wall, went_back = WallTime(), []
    assert wall.now() == pytest.approx(time.time(), abs=1.0)
    clock = ClockOffset(settings, went_back.append, wall)
    await clock.start()
    assert clock.estimate.error < NEAR_SECONDS / 2
    assert clock.machine_offset() == pytest.approx(off, abs=NEAR_SECONDS)
    assert wall.now() == pytest.approx(time.time() - off, abs=NEAR_SECONDS)
    assert went_back == [], "nothing has begun yet"
    await clock.stop()


async def test_a_time_that_goes_back_while_a_worker_runs_ends_it(settings):
    wall, went_back = WallTime(), []
    clock = ClockOffset(settings, went_back.append, wall)
    await clock.start()
    ours = clock.estimate.offset
    wall.steer(ours + HOUR, ours + HOUR)  # as if the broker's time had been that
    stopping = asyncio.Event()
    running = asyncio.create_task(clock.run(stopping))
    async with asyncio.timeout(30):
        while not went_back:
            await asyncio.sleep(0.05)
    stopping.set()
    await running
    assert went_back == pytest.approx([HOUR], abs=NEAR_SECONDS)


async def test_a_broker_that_does_not_tell_its_time_stops_nobody(broker):
    settings = settings_for(broker.bootstrap_servers, f"no-clock-{uuid.uuid4().hex[:8]}")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(settings.topic(CLOCK.name), 1, 1)])
    await admin.close()
    wall = WallTime()
    clock = ClockOffset(settings, lambda _seconds: None, wall)
    await clock.start()
    while clock.trouble is None:
        await clock.measure()
    assert "freshet topics ensure --fix" in clock.trouble
    assert not clock.estimate.is_known
    assert wall.now() == pytest.approx(time.time(), abs=1.0)
    await clock.stop()


@pytest.fixture
async def system(local_broker, database_url):
    """Settings of an installation with many pages and a budget."""
    settings = settings_for(
        local_broker.bootstrap_servers,
        f"clocks-{uuid.uuid4().hex[:8]}",
        database_url=database_url,
        default_host_crawls_per_second=100.0,
        request_timeout_seconds=600.0,
        kafka_session_timeout_seconds=6.0,
    )
    await asyncio.to_thread(migrate, database_url, SHARDS)
    urls = [f"https://host{n % HOSTS}.example/{n}" for n in range(PAGES)]
    await asyncio.to_thread(import_pages, database_url, SHARDS, [page_batch(urls)], now=time.time())
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    await publisher.send_global(BANDWIDTH, Bandwidth(float(RATE)))
    await publisher.stop()
    return settings


def slots_of(records) -> list[float]:
    """The times of the slots that were filled, rising; each for another page."""
    requests = [decode(CrawlRequest, record.value) for record in records]
    assert len({request.url for request in requests}) == len(requests), "a page was asked for twice"
    return sorted(request.requested_at for request in requests)


def counts(slots: list[float], since: float, until: float) -> list[int]:
    """Slots in each whole second between two times."""
    edges = np.arange(math.ceil(since), math.floor(until) + 1)
    return np.histogram(slots, edges)[0].tolist()


@pytest.mark.long
async def test_clocks_that_are_wrong_and_are_set_cost_no_crawls(system, tmp_path):
    """One scheduler is an hour ahead, the coordinator an hour behind; then both are set."""
    ahead, behind = tmp_path / "ahead", tmp_path / "behind"
    ahead.write_text(str(HOUR))
    behind.write_text(str(-HOUR))
    one, two = (system.model_copy(update={"instance": name}) for name in ("one", "two"))
    with contextlib.ExitStack() as stack:
        wrong = stack.enter_context(worker("scheduler", one, tmp_path, clock=ahead))
        right = stack.enter_context(worker("scheduler", two, tmp_path))
        coordinator = stack.enter_context(worker("coordinator", system, tmp_path, clock=behind))
        for process in (wrong, right, coordinator):
            await process.ready()
        async with reader(system, CRAWL_REQUESTS) as requests:
            await requests.until(is_steady)
            began = requests.records[-1].timestamp / 1000
            await until_time(requests, began + 6.0)
            for path, off in ((ahead, -HOUR), (behind, HOUR)):
                path.write_text(str(off))
            await until_time(requests, began + 16.0)
        measured = [await offset_of(process) for process in (wrong, right, coordinator)]
        assert measured == pytest.approx([-HOUR, 0.0, HOUR], abs=1.0)

    slots = slots_of(requests.records)
    found = counts(slots, began, began + 15.0)
    assert max(found) <= RATE + 1, found
    assert sum(found) >= RATE * len(found) - 2 * RATE, found
    late = [
        record.timestamp / 1000 - decode(CrawlRequest, record.value).requested_at
        for record in requests.records
        if record.timestamp / 1000 >= began
    ]
    assert min(late) > -1.0, "nobody fills slots that have not come"


def is_steady(records) -> bool:
    """Whether all shards have been crawled, at the budget, for some seconds."""
    if not records or {record.partition for record in records} != set(range(SHARDS)):
        return False
    times = [record.timestamp / 1000 for record in records]
    lately = [t for t in times if t > max(times) - 3.0]
    return len(lately) >= 0.9 * 3 * RATE and min(times) < max(times) - 4.0


async def until_time(requests, moment: float) -> None:
    await requests.until(lambda got: max(r.timestamp for r in got) / 1000 >= moment)


async def offset_of(process) -> float:
    _, answer = await process.get("/metrics")
    (line,) = (
        line
        for line in answer.decode().splitlines()
        if line.startswith("freshet_clock_offset_seconds ")
    )
    return float(line.split()[1])
