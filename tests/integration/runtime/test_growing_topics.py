"""The topics of the shards get more partitions, and what may go wrong with that."""

import asyncio
import uuid

import pytest
from aiokafka.admin import NewPartitions
from aiokafka.errors import UnknownTopicOrPartitionError
from apache import OWN_ONCE
from structlog.testing import capture_logs

from shared.contracts.messages import PageSignal
from shared.contracts.topics import HOST_LIMITS, PAGE_SIGNALS, SIGNALS, TOPICS
from shared.runtime import kafka, known_partitions
from shared.runtime.growing import OF_SHARDS, add_partitions
from shared.runtime.kafka import administering, ensure_topics, partition_counts, wait_for_leaders
from shared.runtime.partition_counts import TopicMismatch
from shared.runtime.publisher import Publisher
from shared.runtime.settings import load_settings

OTHERS = tuple(topic for topic in TOPICS if topic not in OF_SHARDS)
NAMES = [topic.name for topic in OF_SHARDS]


@pytest.fixture
def settings(broker):
    return settings_on(broker)


def settings_on(broker):
    return load_settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"t{uuid.uuid4().hex}.",
        partitions=2,
    )


async def counts(settings, topics=TOPICS):
    async with administering(settings) as admin:
        found = await partition_counts(admin, settings, topics)
    return {topic.name: found[settings.topic(topic.name)] for topic in topics}


async def grow(settings, topics, count):
    names = [settings.topic(topic.name) for topic in topics]
    async with administering(settings) as admin:
        await admin.create_partitions({name: NewPartitions(count) for name in names})
        await wait_for_leaders(admin, names, count)


async def test_all_topics_of_the_shards_grow_and_no_other(settings):
    await ensure_topics(settings)
    before = await counts(settings)
    assert await add_partitions(settings, 6) == NAMES
    assert await counts(settings) == before | dict.fromkeys(NAMES, 6)


async def test_a_growth_that_was_interrupted_goes_on(settings):
    await ensure_topics(settings)
    await grow(settings, OF_SHARDS[:3], 4)
    assert await add_partitions(settings, 4) == NAMES[3:]
    assert await add_partitions(settings, 4) == []
    assert await counts(settings, OF_SHARDS) == dict.fromkeys(NAMES, 4)


async def test_two_who_add_the_same_partitions_do_not_disturb_each_other(settings):
    await ensure_topics(settings)
    await asyncio.gather(add_partitions(settings, 8), add_partitions(settings, 8))
    assert await counts(settings, OF_SHARDS) == dict.fromkeys(NAMES, 8)


async def test_new_partitions_can_be_written_at_once(settings):
    await ensure_topics(settings)
    await add_partitions(settings, 32)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for shard in range(32):
            signal = PageSignal(shard, f"http://h{shard}/", f"h{shard}", "test", 1.0)
            done = await publisher.send(PAGE_SIGNALS, b"", str(signal).encode(), partition=shard)
            assert (await done).offset == 0
    finally:
        await publisher.stop()


@pytest.mark.parametrize(("wanted", "says"), [(3, "multiple"), (1, "only grow")])
async def test_hosts_would_get_lost_so_nothing_is_changed(settings, wanted, says):
    await ensure_topics(settings)
    with pytest.raises(TopicMismatch, match=says):
        await add_partitions(settings, wanted)
    assert await counts(settings, OF_SHARDS) == dict.fromkeys(NAMES, 2)


async def test_one_topic_with_more_stops_all(settings):
    await ensure_topics(settings)
    await grow(settings, [HOST_LIMITS], 8)
    with pytest.raises(TopicMismatch, match=r"host-limits has 8 partitions and cannot get 4"):
        await add_partitions(settings, 4)
    assert await counts(settings, [PAGE_SIGNALS]) == {PAGE_SIGNALS.name: 2}


async def test_topics_that_are_not_there_are_not_made(settings):
    with pytest.raises(TopicMismatch, match="freshet topics ensure"):
        await add_partitions(settings, 4)
    assert set((await counts(settings)).values()) == {0}


@OWN_ONCE
async def test_it_waits_for_a_broker_that_is_away(own_broker):
    settings = settings_on(own_broker)
    await ensure_topics(settings)
    own_broker.stop()
    adding = asyncio.create_task(add_partitions(settings, 4))
    await asyncio.sleep(1.0)
    assert not adding.done()
    own_broker.start()
    assert await adding == NAMES


async def test_a_process_of_before_starts_after_the_growth(settings):
    await ensure_topics(settings)
    await add_partitions(settings, 8)
    with capture_logs() as lines:
        await ensure_topics(settings)
    assert [line for line in lines if "have grown" in line["event"]]
    assert await counts(settings, OF_SHARDS) == dict.fromkeys(NAMES, 8)


async def test_a_topic_that_is_made_after_the_growth_is_as_large_as_the_others(settings):
    await ensure_topics(settings, tuple(topic for topic in TOPICS if topic != HOST_LIMITS))
    await grow(settings, [topic for topic in OF_SHARDS if topic != HOST_LIMITS], 8)
    await ensure_topics(settings)
    assert await counts(settings, [HOST_LIMITS]) == {HOST_LIMITS.name: 8}


async def test_a_worker_starts_before_the_topics_have_grown(settings):
    await ensure_topics(settings)
    prepared = settings.model_copy(update={"partitions": 8})
    with capture_logs() as lines:
        await ensure_topics(prepared)
    assert [line for line in lines if line.get("goes_on_with") == "freshet shards grow 8"]
    assert await counts(settings, OF_SHARDS) == dict.fromkeys(NAMES, 2), "that is the command's"


async def test_single_topics_and_odd_numbers_are_refused_as_ever(settings):
    await ensure_topics(settings)
    with pytest.raises(TopicMismatch, match="FRESHET_PARTITIONS"):
        await ensure_topics(settings.model_copy(update={"partitions": 3}))
    await grow(settings, [topic for topic in OTHERS if topic.partitioning == "single"][:1], 2)
    with pytest.raises(TopicMismatch, match=r"2 partitions .* say 1"):
        await ensure_topics(settings)


async def test_signals_may_have_any_number(settings):
    await ensure_topics(settings)
    await grow(settings, [SIGNALS], 5)
    await ensure_topics(settings)


async def test_a_producer_that_runs_writes_to_partitions_it_has_not_heard_of(settings, monkeypatch):
    monkeypatch.setattr(kafka, "METADATA_SECONDS", 300)
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        await (await publisher.send(PAGE_SIGNALS, b"k", b"before", partition=0))
        assert await publisher.partitions_of(PAGE_SIGNALS) == 2
        await add_partitions(settings, 8)
        assert (await (await publisher.send(PAGE_SIGNALS, b"k", b"one", partition=5))).offset == 0
        assert await publisher.partitions_of(PAGE_SIGNALS) == 8
        await grow(settings, [PAGE_SIGNALS], 16)
        place = (PAGE_SIGNALS.name, 13)
        assert await publisher.send_batches({place: [(b"k", b"two")]}) == {place: 1}
    finally:
        await publisher.stop()


async def test_nothing_is_sent_by_a_number_that_would_part_hosts_from_their_shards(
    settings, monkeypatch
):
    monkeypatch.setattr(kafka, "METADATA_SECONDS", 300)
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for count in (5, 8):
            await grow(settings, [PAGE_SIGNALS, SIGNALS], count)
            await publisher.partitions_of(SIGNALS)  # may have any number
            await publisher.producer.client.force_metadata_update()
            if count == 8:
                assert await publisher.partitions_of(PAGE_SIGNALS) == count
                continue
            with pytest.raises(TopicMismatch, match="page-signals has 5 partitions"):
                await publisher.partitions_of(PAGE_SIGNALS)
    finally:
        await publisher.stop()


async def test_a_partition_that_is_not_there_is_an_error_of_the_broker(settings, monkeypatch):
    monkeypatch.setattr(known_partitions, "PATIENCE_SECONDS", 0.3)
    await ensure_topics(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        with pytest.raises(UnknownTopicOrPartitionError, match="has no partition 2"):
            await publisher.send(PAGE_SIGNALS, b"k", b"v", partition=2)
    finally:
        await publisher.stop()
