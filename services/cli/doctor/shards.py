"""Whether the topics have as many partitions as the database has shards."""

import asyncio
from collections.abc import Iterator

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
    try:
        shards = fetch_layout(databases.home.url, "doctor").shards
    except StoreMismatch:
        return
    found = asyncio.run(topic_partitions(settings, OF_SHARDS))
    counts = {len(partitions) for partitions in found.values()} - {0}
    if len(counts) != 1 or counts == {shards}:
        return  # Where they differ, a growth has been cut off amid the topics.
    [count] = counts
    yield Finding(
        "risk",
        "shards of both",
        f"{count} partitions of each topic, and {shards} shards in the database",
        f"{max(count, shards)} of both",
        "every page is served by one shard",
        f"freshet shards grow {max(count, shards)}",
    )
