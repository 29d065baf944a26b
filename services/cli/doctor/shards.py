"""Whether the topics have as many partitions as each database has shards."""

import asyncio
import contextlib
from collections.abc import Iterator

import psycopg

from shared.contracts.databases import Databases
from shared.runtime.findings import Finding
from shared.runtime.growing import OF_SHARDS
from shared.runtime.kafka import topic_partitions
from shared.runtime.settings import Settings
from shared.store.deployment import StoreMismatch
from shared.store.layout import fetch_layout


def look_at_shards(settings: Settings, databases: Databases) -> Iterator[Finding]:
    """What is amiss, as where topics were made anew by settings of before a growth, or a dump of
    before it was restored. What is not there at all is not told here.

    Raises:
        KafkaError, psycopg.Error: one of both is away, or lets nobody look.
    """
    shards: dict[str, int] = {}
    for one in databases.each:
        away = (psycopg.Error,) if databases.are_several else ()
        # Of several databases one that is away says nothing of the others.
        with contextlib.suppress(StoreMismatch, *away):
            of = f" ({one.held})" if databases.are_several else ""
            shards[of] = fetch_layout(one.url, "doctor").shards
    found = asyncio.run(topic_partitions(settings, OF_SHARDS))
    counts = {len(partitions) for partitions in found.values()} - {0}
    if len(counts) != 1:
        return  # Where they differ, a growth has been cut off amid the topics.
    [count] = counts
    wanted = max(count, *shards.values(), 0)
    for of, number in shards.items():
        if number == wanted == count:
            continue
        first = ", while estimators run: it waits until they have applied all" * (number < count)
        yield Finding(
            "risk",
            f"shards of both{of}",
            f"{count} partitions of each topic, and {number} shards in the database",
            f"{wanted} of both",
            "every page is served by one shard",
            f"freshet shards grow {wanted}{first}",
        )
