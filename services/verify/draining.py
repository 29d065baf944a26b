"""The end of a verification: no budget any more, and all that is under way comes to its end."""

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import aiohttp
import psycopg

from services.verify.checks.memory import Remembered
from services.verify.crawlers import Crawlers
from services.verify.plan import BUSY_SECONDS, REQUEST_TIMEOUT_SECONDS
from services.verify.records import end_offsets
from services.verify.sending import Sender
from services.verify.servers import LOOPBACK
from services.verify.system import FAILED_RETRY_SECONDS, System
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
from shared.store.positions import ESTIMATOR

REASK_SECONDS: Final = 4.0 + max(REQUEST_TIMEOUT_SECONDS + FAILED_RETRY_SECONDS, *BUSY_SECONDS)
"""At the end the budget stays for so long after the last fault: lost requests are asked again, when
they are late and their hosts' pauses are over."""

QUIET_SECONDS: Final = 3.0
"""Without anything new for so long, all has come."""

PATIENCE_SECONDS: Final = 60.0

LOOK_SECONDS: Final = 0.3
"""Between two looks whether it is over."""

_ASKED_AT_ONCE: Final = 4
_ANSWER_SECONDS: Final = 60.0
"""The first question about a page may have something compiled."""

_APPLIED: Final = (CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, HOST_LIMITS)
_WATCHED: Final = (*_APPLIED, CRAWL_REQUESTS, DEAD_LETTERS)


async def drain(
    system: System, sender: Sender, crawlers: Crawlers, traffic: Traffic, max_age_seconds: float
) -> bool:
    """Take the budget away, and wait until everything is applied.

    Pages of requests that nobody answered are asked for again before that, by their value or at
    the latest by their age.

    Returns:
        whether the system came to rest.
    """
    crawlers.answers_everything = traffic.is_quiet = True
    await asyncio.sleep(REASK_SECONDS)
    for _ in range(math.ceil(max_age_seconds / LOOK_SECONDS)):
        if not crawlers.left:
            break
        await asyncio.sleep(LOOK_SECONDS)
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
        await asyncio.sleep(LOOK_SECONDS)
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

    Raises:
        aiohttp.ClientError: a scheduler does not answer.
    """
    counts: dict[int, int] = {}
    addresses: dict[int, str] = {}
    gate = asyncio.Semaphore(_ASKED_AT_ONCE)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(_ANSWER_SECONDS)) as client:
        for name in system.instances("scheduler"):
            address = f"http://{LOOPBACK}:{system.ports[name]}"
            answer = await _asked(client, f"{address}/shards") or {}
            for shard in answer.get("shards", []):
                counts[shard["shard"]] = shard["pages"]
                addresses[shard["shard"]] = address

        async def remembered(url: str) -> Remembered:
            address = addresses.get(shard_of(identify(url).host, system.shards))
            async with gate:
                at = time.time()
                page = await _asked(client, f"{address}/pages", url=url) if address else None
            return Remembered(url, at, page)

        return Memory(counts, await asyncio.gather(*map(remembered, urls)))


async def _asked(client: aiohttp.ClientSession, address: str, **query: str) -> Any:
    """What a worker answers; None: it does not know."""
    async with client.get(address, params=query) as answer:
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        answer.raise_for_status()
        return await answer.json()
