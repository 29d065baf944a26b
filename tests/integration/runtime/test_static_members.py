"""A worker that is killed and started again within the session timeout moves no shard."""

import asyncio
import json
import time
import uuid

import pytest
from workers import settings_for, worker

from migrations.upgrade import migrate
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.store.status import store_status

pytestmark = pytest.mark.slow(20)

PATIENCE_SECONDS = 90.0
SHARDS = 8


def assignments(process) -> list[dict]:
    """What the group gave a worker, by all its lives."""
    lines = (json.loads(line) for line in process.log.splitlines() if line.startswith("{"))
    return [line for line in lines if line["event"] == "partitions assigned"]


async def until(condition, process):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, process.log
        await asyncio.sleep(0.05)


async def publish_pages(settings, count):
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for number in range(count):
            update = PageUpdate("upsert", f"https://host-{number}.example/", updated_at=1.7e9)
            host = identify(update.url).host
            shard = shard_of(host, settings.partitions)
            await publisher.send(PAGE_UPDATES, host.encode(), encode(update), partition=shard)
        await publisher.flush()
    finally:
        await publisher.stop()


async def test_a_killed_worker_comes_back_to_its_shards(broker, database_url, tmp_path):
    settings = settings_for(
        broker.bootstrap_servers,
        f"static-{uuid.uuid4().hex[:8]}",
        database_url=database_url,
        partitions=SHARDS,
        kafka_session_timeout_seconds=30.0,
        instance="one",
    )
    await asyncio.to_thread(migrate, database_url, SHARDS)
    await ensure_topics(settings)
    other = settings.model_copy(update={"instance": "two"})
    with (
        worker("estimator", settings, tmp_path) as one,
        worker("estimator", other, tmp_path) as two,
    ):
        await until(
            lambda: (
                [(assignments(p) or [{}])[-1].get("now") for p in (one, two)]
                == [SHARDS // 2, SHARDS // 2]
            ),
            one,
        )
        await asyncio.gather(one.ready(), two.ready())
        shards = await served(one)
        lives = len(assignments(one))
        others_view = assignments(two)
        one.kill()
        with worker("estimator", settings, tmp_path) as again:
            await again.ready()
            assert await served(again) == shards
            # All at once, and nothing else moved, on either side.
            assert len(assignments(again)) == lives + 1
            await publish_pages(settings, 100)
            url = database_url
            while True:
                status = await asyncio.to_thread(store_status, url, 1.7e9)
                if status["pages"]["active"] == 100:
                    break
                await asyncio.sleep(0.1)
            assert assignments(two) == others_view
            assert len(assignments(again)) == lives + 1


async def served(process) -> list[int]:
    """The shards that a worker serves, out of what the group gave it in this life."""
    ours: set[int] = set()
    for given in assignments(process):
        ours = (ours - set(given["lost"])) | set(given["new"])
        if given["now"] == len(given["new"]):
            ours = set(given["new"])
    return sorted(ours)
