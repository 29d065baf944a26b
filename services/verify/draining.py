"""The end of a verification: no budget any more, and all that is under way comes to its end."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from services.verify.checks.memory import Remembered
from services.verify.crawlers import Crawlers
from services.verify.plan import BUSY_SECONDS, PARTITIONS, REQUEST_TIMEOUT_SECONDS
from services.verify.records import end_offsets
from services.verify.sending import Sender
from services.verify.system import LOOPBACK, System
from services.verify.traffic import Traffic
from shared.contracts.identity import identify, shard_of
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    HOST_LIMITS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
)
from shared.runtime.asking import ask
from shared.store.positions import ESTIMATOR

REASK_SECONDS: Final = 4.0 + max(REQUEST_TIMEOUT_SECONDS, *BUSY_SECONDS)
"""At the end the budget stays for so long after the last fault: lost requests are asked again, when
they are late and their hosts' pauses are over."""

QUIET_SECONDS: Final = 3.0
"""Without anything new for so long, all has come."""

PATIENCE_SECONDS: Final = 60.0

_ASKED_AT_ONCE: Final = 4

_APPLIED: Final = (CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, HOST_LIMITS)
_WATCHED: Final = (*_APPLIED, CRAWL_REQUESTS, DEAD_LETTERS)


async def drain(system: System, sender: Sender, crawlers: Crawlers, traffic: Traffic) -> bool:
    """Take the budget away, and wait until everything is applied.

    Returns:
        whether the system came to rest.
    """
    crawlers.answers_everything = traffic.is_quiet = True
    await asyncio.sleep(REASK_SECONDS)
    await sender.set_budget(0.0)
    last: dict[tuple[str, int], int] = {}
    since = time.monotonic()
    deadline = since + PATIENCE_SECONDS
    while time.monotonic() - since < QUIET_SECONDS:
        ends = await end_offsets(system.settings, _WATCHED)
        positions = await asyncio.to_thread(_positions, system.database_url)
        behind = {
            key: end
            for key, end in ends.items()
            if key[0] in {topic.name for topic in _APPLIED} and positions.get(key, 0) < end
        }
        if ends != last or behind or sender.waiting or crawlers.busy:
            last, since = ends, time.monotonic()
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.3)
    return True


def _positions(database_url: str) -> dict[tuple[str, int], int]:
    query = "SELECT topic, partition, next_offset FROM stream_positions WHERE consumer = %s"
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(query, (ESTIMATOR,)).fetchall()
    return {(topic, partition): offset for topic, partition, offset in rows}


@dataclass(frozen=True, slots=True)
class Memory:
    """What schedulers have in memory."""

    pages: Mapping[int, int]
    """Shard → how many pages there are of it."""
    sample: Sequence[Remembered]
    """Some of the pages, and some that should not be there."""


async def memory_of(system: System, urls: Sequence[str]) -> Memory:
    """Ask schedulers what they know.

    Args:
        system: at rest.
        urls: of the pages to be asked about.
    """
    counts: dict[int, int] = {}
    addresses: dict[int, str] = {}
    for name in system.instances("scheduler"):
        address = f"http://{LOOPBACK}:{system.ports[name]}"
        answer: dict[str, Any] | None = await asyncio.to_thread(ask, address, "/shards")
        for shard in (answer or {}).get("shards", []):
            counts[shard["shard"]] = shard["pages"]
            addresses[shard["shard"]] = address
    gate = asyncio.Semaphore(_ASKED_AT_ONCE)

    async def remembered(url: str) -> Remembered:
        address = addresses.get(shard_of(identify(url).host, PARTITIONS), "")
        async with gate:
            page = await asyncio.to_thread(ask, address, "/pages", url=url)
        return Remembered(url, time.time(), page)

    return Memory(counts, await asyncio.gather(*map(remembered, urls)))
