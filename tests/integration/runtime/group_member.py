"""A member of a group that reads two topics, and waiting for what it does."""

import asyncio
from contextlib import asynccontextmanager

from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS
from shared.runtime.consumer import BatchConsumer


@asynccontextmanager
async def member(settings, handler, **options):
    topics = (PAGE_SIGNALS, CRAWL_OUTCOMES)
    made = BatchConsumer(settings, "readers", topics, handler, **options)
    await made.start()
    stopping = asyncio.Event()
    running = asyncio.create_task(made.run(stopping))
    try:
        yield made
    finally:
        stopping.set()
        try:
            async with asyncio.timeout(10.0):
                await running
        finally:
            await made.stop()


async def until(condition, seconds=40.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.02)
