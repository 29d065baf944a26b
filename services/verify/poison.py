"""Writing bad messages to a running system, and the account of what must become of them."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import xxhash
from aiokafka import AIOKafkaProducer

from services.verify.bad_messages import Injection
from services.verify.templates import misplaced, refused_by_meaning, spoilt, templates
from shared.runtime.kafka import make_producer
from shared.runtime.settings import Settings

Place = tuple[str, int, int]
"""Topic, partition and offset of a record."""

Sent = dict[Place, Injection]

OF_EACH_TOPIC: Final = 3
"""Bad messages that are written to each topic at once."""


async def write(
    producer: AIOKafkaProducer, settings: Settings, all_: Sequence[Injection]
) -> tuple[Sent, list[tuple[Injection, BaseException]]]:
    """Write records, each in a batch of its own.

    Returns:
        where they stand, and those that the broker itself refuses.
    """
    futures = []
    for one in all_:
        # `send` refuses a record without key and value, which other clients write.
        batch = producer.create_batch()
        batch.append(timestamp=None, key=one.key, value=one.value, headers=list(one.headers))
        name = settings.topic(one.topic.name)
        futures.append(await producer.send_batch(batch, name, partition=one.partition))
    places: list[Any] = await asyncio.gather(*futures, return_exceptions=True)
    sent, refused = {}, []
    for place, one in zip(places, all_, strict=True):
        if isinstance(place, BaseException):
            refused.append((one, place))
        else:
            sent[place.topic, place.partition, place.offset] = one
    return sent, refused


class Poison:
    """Bad messages on every topic, a few at a time."""

    def __init__(self, settings: Settings, seed: int) -> None:
        self.sent: Sent = {}
        """All that were written, where they stand."""
        self.written_at: dict[Place, float] = {}
        """Unix seconds."""
        self.tried: set[int] = set()
        """Hashes of all values that were sent: the broker may have one that it did not
        acknowledge."""
        self.refused = 0
        """How many it did not acknowledge."""
        self.settings = settings
        self._rng = np.random.default_rng([seed, 22])

    async def write(self) -> int:
        """Write some of each topic; how many."""
        settings = self.settings
        good = await templates(settings, time.time())
        bad = [*spoilt(good), *misplaced(good, settings.partitions)]
        bad += refused_by_meaning(good, settings.partitions)
        by_topic: dict[str, list[Injection]] = defaultdict(list)
        for one in bad:
            if one.stage is not None and not (one.topic.compacted and one.key is None):
                by_topic[one.topic.name].append(one)
        chosen = [
            of_topic[index]
            for of_topic in by_topic.values()
            for index in self._rng.choice(len(of_topic), OF_EACH_TOPIC, replace=False)
        ]
        self.tried |= {xxhash.xxh3_64_intdigest(one.value or b"") for one in chosen}
        producer = make_producer(settings, max_request_size=2_000_000)
        await producer.start()
        try:
            sent, refused = await write(producer, settings, chosen)
        finally:
            await producer.stop()
        self.refused += len(refused)
        self.sent |= sent
        self.written_at |= dict.fromkeys(sent, time.time())
        return len(sent)
