"""A member of a group that reads two topics, what it reads, and waiting for what it does."""

import asyncio
from contextlib import asynccontextmanager

from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS
from shared.runtime.consumer import BatchConsumer
from shared.runtime.settings import load_settings

PARTITIONS = 4


def settings_for(broker, prefix, instance="one", **more):
    return load_settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=prefix,
        partitions=PARTITIONS,
        instance=instance,
        kafka_session_timeout_seconds=6.0,
        **more,
    )


class Recorder:
    """A handler that keeps what it gets and its own positions, as a durable one would."""

    def __init__(self, positions):
        self.positions = positions
        self.seen = []
        self.loads = []

    async def assigned(self, partitions):
        self.loads.append(partitions)
        await asyncio.sleep(0.05)
        return dict(self.positions)

    async def revoked(self, partitions):
        pass

    async def handle(self, batch):
        for topic, partitions in batch.items():
            for partition, records in partitions.items():
                self.seen += [(topic, partition, record.offset) for record in records]
                self.positions[topic, partition] = records[-1].offset + 1


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
