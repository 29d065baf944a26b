"""What is said of pages, as records of `signals`: for workers that bring it in from elsewhere."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import Signal
from shared.contracts.topics import SIGNALS
from shared.runtime.publisher import ByPlace, Publisher

KEY_HEADER: Final = "source-key"
"""In which a record of a source that is known by a key shows it."""

FEW: Final = 100
"""More are encoded in a thread."""


@dataclass(frozen=True, slots=True)
class Ping:
    """What somebody says of a page."""

    url: str
    host: str
    """By which signals of one host stay in order."""
    observed_at: float | None = None


async def signals_by_place(publisher: Publisher, source: str, pings: Sequence[Ping]) -> ByPlace:
    """Signals by partition of `signals`, which may have any number of them."""
    name = publisher.settings.topic(SIGNALS.name)
    partitions = sorted(await publisher.producer.partitions_for(name))
    if len(pings) <= FEW:
        return _by_place(source, pings, partitions)
    return await asyncio.to_thread(_by_place, source, pings, partitions)


def _by_place(source: str, pings: Sequence[Ping], partitions: Sequence[int]) -> ByPlace:
    made: ByPlace = {}
    for ping in pings:
        partition = partitions[shard_of(ping.host, len(partitions))]
        value = encode(Signal(ping.url, source, ping.observed_at))
        made.setdefault((SIGNALS.name, partition), []).append((ping.host.encode(), value))
    return made
