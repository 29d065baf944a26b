"""`/shards` is for anybody who asks, and looks through all pages where slots are filled."""

import asyncio
import time

import aiohttp

from deploy.local.process import free_port
from services.scheduler.worker import Scheduler, add_pages
from shared.runtime.settings import Settings
from shared.runtime.worker import make_app

ASKING = 40


async def test_however_many_ask_for_the_shards_the_pages_are_looked_through_now_and_then(
    monkeypatch,
):
    settings = Settings(http_port=free_port())
    scheduler = Scheduler(settings)
    made = 0

    async def look_through():
        nonlocal made
        made += 1
        # As ten million pages take, one look after the other.
        await scheduler._thread.run(time.sleep, 0.05)
        return [{"shard": made}]

    monkeypatch.setattr(scheduler, "describe_shards", look_through)
    app = make_app("scheduler", scheduler)
    add_pages(app, scheduler)
    app.web.init_server()
    await app.web.start_server()
    try:
        address = f"http://127.0.0.1:{settings.http_port}/shards"
        async with aiohttp.ClientSession() as client:

            async def ask():
                async with client.get(address) as answer:
                    return (await answer.json())["shards"]

            answers = await asyncio.gather(*(ask() for _ in range(ASKING)))
    finally:
        await app.web.stop_server()
        scheduler._thread.close()
    assert all(1 <= shard["shard"] <= made for [shard] in answers)
    assert made < ASKING / 4
