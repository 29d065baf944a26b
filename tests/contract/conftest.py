"""Clients for the contract tests, closed when the test ends."""

import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.structs import ConsumerRecord


@pytest.fixture
def unique() -> str:
    """A name that no other test uses, for topics and groups."""
    return f"test-{uuid.uuid4().hex[:16]}"


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Closes what the other fixtures opened, last first."""
    async with AsyncExitStack() as stack:
        yield stack


class Clients:
    """Makes aiokafka clients of one broker."""

    def __init__(self, bootstrap_servers: str, stack: AsyncExitStack) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._stack = stack

    async def admin(self) -> AIOKafkaAdminClient:
        client = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        await client.start()
        self._stack.push_async_callback(client.close)
        return client

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> str:
        admin = await self.admin()
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        topic = NewTopic(name, partitions, 1, topic_configs=settings)
        answer = await admin.create_topics([topic])
        assert answer.topic_errors[0][1] == 0, answer
        await self.until_partitions(name, partitions)
        return name

    async def until_partitions(self, name: str, count: int) -> None:
        """Wait until the topic has so many partitions: Apache Kafka tells of them a bit later."""
        admin = await self.admin()
        led: list[int] = []
        while len(led) != count:
            (topic,) = await admin.describe_topics([name])
            led = [part["partition"] for part in topic["partitions"] if part["leader"] >= 0]

    async def producer(self, **options: object) -> AIOKafkaProducer:
        client = AIOKafkaProducer(bootstrap_servers=self.bootstrap_servers, **options)
        await client.start()
        self._stack.push_async_callback(client.stop)
        return client

    async def consumer(self, *topics: str, **options: object) -> AIOKafkaConsumer:
        settings = {"auto_offset_reset": "earliest", **options}
        client = AIOKafkaConsumer(
            *topics, bootstrap_servers=self.bootstrap_servers, metadata_max_age_ms=1000, **settings
        )
        await client.start()
        self._stack.push_async_callback(client.stop)
        return client


@pytest.fixture
def connect(stack: AsyncExitStack) -> Callable[[str], Clients]:
    """Makes clients for a bootstrap address."""
    return lambda bootstrap_servers: Clients(bootstrap_servers, stack)


@pytest.fixture
def clients(broker, connect: Callable[[str], Clients]) -> Clients:
    """Clients of each shared broker in turn."""
    return connect(broker.bootstrap_servers)


@pytest.fixture
def read() -> Iterator[Callable[[AIOKafkaConsumer, int], Awaitable[list[ConsumerRecord]]]]:
    """Reads so many messages from a consumer."""

    async def read_count(consumer: AIOKafkaConsumer, count: int) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        while len(found) < count:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                found += records
        return found

    return read_count
