"""A node is gone, and with it the only copies of some partitions: the others are read meanwhile."""

import asyncio
import time

import pytest
from apache import need_apache_kafka
from nodes import three_nodes

from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime.consumer import BatchConsumer
from shared.runtime.kafka import ensure_topics, make_consumer, make_producer
from shared.runtime.leaders import Leaders
from shared.runtime.settings import load_settings

PATIENCE_SECONDS = 60.0


class Noting:
    """Notes which partitions had something to be handled."""

    def __init__(self):
        self.handled = set()

    async def assigned(self, partitions):
        return {(CRAWL_OUTCOMES.name, number): 0 for number in partitions}

    async def revoked(self, _partitions):
        pass

    async def unread(self, _ends):
        pass

    async def handle(self, batch):
        self.handled |= batch[CRAWL_OUTCOMES.name].keys()


async def without_leader(settings):
    async with make_consumer(settings) as consumer:
        return await Leaders(consumer, [settings.topic(CRAWL_OUTCOMES.name)]).lacking({0, 1, 2})


@pytest.mark.slow(20)
@pytest.mark.kafka
async def test_partitions_of_other_nodes_are_read_and_theirs_when_the_node_is_back(system_dir):
    need_apache_kafka()
    async with three_nodes(system_dir) as cluster:
        settings = load_settings(
            kafka_bootstrap_servers=cluster.bootstrap_servers, partitions=3, replication_factor=1
        )
        await ensure_topics(settings, (CRAWL_OUTCOMES,))
        async with make_producer(settings) as producer:
            for number in range(3):
                await producer.send_and_wait(
                    settings.topic(CRAWL_OUTCOMES.name), b"{}", partition=number
                )
        await asyncio.to_thread(cluster.nodes[3].kill)
        await _until(lambda: without_leader(settings))
        gone = await without_leader(settings)
        assert 0 < len(gone) < 3, "each node has some of them"

        handler, stopping = Noting(), asyncio.Event()
        reader = BatchConsumer(
            *(settings, "group", (CRAWL_OUTCOMES,), handler), unread=handler.unread
        )
        await reader.start()
        reading = asyncio.create_task(reader.run(stopping))
        try:
            await _until(lambda: handler.handled == {0, 1, 2} - gone)
            assert reader.settled
            assert all(str(number) in reader.trouble for number in gone)
            await asyncio.to_thread(cluster.nodes[3].start)
            await _until(lambda: handler.handled == {0, 1, 2})
            assert reader.trouble is None
        finally:
            stopping.set()
            await reading
            await reader.stop()


async def _until(condition):
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = condition()
        if await found if asyncio.iscoroutine(found) else found:
            return
        assert time.monotonic() < until
        await asyncio.sleep(0.1)
