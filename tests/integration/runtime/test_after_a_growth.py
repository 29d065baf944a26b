"""Commands whose settings still say the number of shards of before look at all partitions."""

import asyncio
import uuid

import pytest

from migrations.upgrade import migrate
from services.cli.erasing import forget_rules
from services.cli.positions import places
from services.cli.standing import read_standing
from shared.contracts.codec import decode, encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import HostLimit
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS
from shared.runtime.growing import add_partitions
from shared.runtime.kafka import ensure_topics, make_consumer, topic_partitions
from shared.runtime.publisher import Publisher
from shared.runtime.settings import load_settings
from shared.store.growth import begin_growth

BEFORE, AFTER = 2, 6
MOVED = next(
    host
    for host in (f"host-{number}.example" for number in range(99))
    if shard_of(host, AFTER) >= BEFORE
)


@pytest.fixture
async def settings(local_broker, database_url):
    settings = load_settings(
        kafka_bootstrap_servers=local_broker.bootstrap_servers,
        database_url=database_url,
        topic_prefix=f"t{uuid.uuid4().hex}.",
        partitions=BEFORE,
    )
    await asyncio.to_thread(migrate, database_url, BEFORE)
    await ensure_topics(settings)
    return settings


async def limit(settings, partition, rate):
    publisher = Publisher(settings)
    await publisher.start()
    value = encode(HostLimit(MOVED, rate))
    await (await publisher.send(HOST_LIMITS, MOVED.encode(), value, partition=partition))
    await publisher.stop()


async def last_values(settings, topic):
    """The last record of each partition that has any."""
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        partitions = (await topic_partitions(settings, [topic]))[topic.name]
        consumer.assign(partitions)
        ends = {tp: end for tp, end in (await consumer.end_offsets(partitions)).items() if end}
        for tp, end in ends.items():
            consumer.seek(tp, end - 1)
        return [(await consumer.getone(tp)).value for tp in ends]
    finally:
        await consumer.stop()


@pytest.mark.parametrize("stale_last", [False, True])
async def test_the_later_of_two_rules_of_a_host_that_moved_is_saved(settings, stale_last):
    """Whoever is stale writes to the partition of before, sooner or later."""
    await add_partitions(settings, AFTER)
    where = [shard_of(MOVED, BEFORE), shard_of(MOVED, AFTER)]
    for rate, partition in enumerate(reversed(where) if stale_last else where):
        await limit(settings, partition, float(rate + 1))
        await asyncio.sleep(0.01)
    standing = await read_standing(settings, HOST_LIMITS)
    assert decode(HostLimit, standing[MOVED, "limit"]).max_crawls_per_second == 2.0


async def test_nothing_is_left_of_the_rules_of_a_host_that_is_erased(settings):
    begin_growth(settings.database_url.get_secret_value(), AFTER)
    await add_partitions(settings, AFTER)
    for shards in (BEFORE, AFTER):
        await limit(settings, shard_of(MOVED, shards), 1.0)
    publisher = Publisher(settings)
    await publisher.start()
    await forget_rules(settings, publisher, MOVED)
    await publisher.stop()
    assert await last_values(settings, HOST_LIMITS) == [None, None]


async def test_positions_are_those_of_all_partitions(settings):
    await add_partitions(settings, AFTER)
    there, _ = await places(settings)
    found = [place for place in there if place.topic == CRAWL_OUTCOMES.name]
    assert [place.partition for place in found] == list(range(AFTER))
