"""Questions to brokers that aiokafka has no method for, on the model."""

from collections.abc import Iterable

from aiokafka import TopicPartition

from services.verify.simulation.kafka.consumer import Consumer


async def end_of_log(consumer: Consumer, tp: TopicPartition) -> int:
    """As `shared.runtime.log_ends.end_of_log`."""
    log = consumer.broker.partition
    return await consumer.network.query(lambda: log(tp.topic, tp.partition).end)


async def topic_ids(client: Consumer, names: Iterable[str]) -> dict[str, str]:
    """As `shared.runtime.topic_metadata.topic_ids`."""
    asked = list(names)
    return await client.network.ask(lambda: {name: client.broker.topic_id(name) for name in asked})


async def leaderless(client: Consumer, names: Iterable[str]) -> dict[str, set[int]]:
    """As `shared.runtime.topic_metadata.leaderless`."""
    asked = list(names)

    def look() -> dict[str, set[int]]:
        now = client.loop.now
        logs = {name: client.broker.topics.get(name, []) for name in asked}
        return {
            name: {n for n, log in enumerate(logs[name]) if not log.is_led(now)}
            for name in asked
            if not all(log.is_led(now) for log in logs[name])
        }

    return await client.network.ask(look)
