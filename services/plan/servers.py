"""What PostgreSQL and Kafka must hold and carry."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.plan.coefficients import MESSAGES
from shared.contracts.topics import TOPICS, Topic
from shared.units import SECONDS_PER_DAY

USED_CORES: Final = 0.5
"""Of PostgreSQL's cores: the rest is for checkpoints, vacuum and loading."""

START_SECONDS: Final = 600.0
"""All workers that start at once are given all pages in so long, if PostgreSQL has the cores."""

DISK_ROOM: Final = 2.0
"""Over what is needed: updates leave room behind them, and a table can be written anew."""

MEMORY_ROOM: Final = 1.25
"""Over what is needed, of servers and of workers: a process that reaches its limit is killed."""

KAFKA_ROOM: Final = 1.5
"""Over what topics keep: whole segments are deleted, and late."""

CHECKPOINT_SECONDS: Final = 900.0
"""As docker-compose.yml has it. The log between checkpoints stays on the disk, and the first change
of a block after one writes all of the block to the log."""

BLOCK_BYTES: Final = 8192.0

LONG_DAYS: Final = 7.0
"""Topics that are kept so long, or longer, are those whose days can be chosen."""

_MILLISECONDS: Final = 1000.0

_READERS: Final[Mapping[str, tuple[str, ...]]] = {
    "signals": ("ingester group",),
    "page-signals": ("scheduler group", "estimator group"),
    "crawl-requests": ("crawlers",),
    "crawl-outcomes": ("scheduler group", "estimator group"),
    "page-parameters": ("scheduler group",),
    "host-parameters": ("scheduler group",),
    "demand-curves": ("coordinator",),
    "multipliers": ("scheduler", "coordinator"),
}
"""Who reads a topic: a group reads it once, of a worker each replica."""


@dataclass(frozen=True, slots=True)
class Load:
    """What there is to do, and how long it is kept."""

    pages: float
    hosts: float
    crawls: float
    """A second."""
    signals: float
    """A second."""
    observations_days: float
    """PostgreSQL keeps observations so long."""
    topic_days: float | None
    """Kafka keeps outcomes and signals so long; None: as the topics are made."""
    copies: int
    """Of each record on Kafka."""


@dataclass(frozen=True, slots=True)
class Postgres:
    """The server that holds everything."""

    cores: float
    """To be had."""
    memory_bytes: float
    """To be had: connections, and the keys of all pages in the cache."""
    connections: int
    disk_bytes: Mapping[str, float]
    """Of `pages`, `hosts`, `observations`, `log`."""
    log_bytes_per_second: float
    """Written to its log, and sent to each standby."""
    reads_per_second: float
    """Of blocks from the disk, at most: rows that are not in the cache."""


@dataclass(frozen=True, slots=True)
class TopicSize:
    """A topic."""

    partitions: int
    records_per_second: float
    bytes_per_second: float
    """As producers send them."""
    read_bytes_per_second: float
    """By all of its readers."""
    disk_bytes: float
    """On all brokers together."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """The brokers together."""

    topics: Mapping[str, TopicSize]
    copies: int

    @property
    def disk_bytes(self) -> float:
        """Of all topics."""
        return sum(topic.disk_bytes for topic in self.topics.values())

    @property
    def received_bytes_per_second(self) -> float:
        """From producers, and by brokers from each other."""
        return self.copies * sum(topic.bytes_per_second for topic in self.topics.values())

    @property
    def sent_bytes_per_second(self) -> float:
        """To readers, and by brokers to each other."""
        written = sum(topic.bytes_per_second for topic in self.topics.values())
        read = sum(topic.read_bytes_per_second for topic in self.topics.values())
        return read + (self.copies - 1) * written


def postgres_for(load: Load, cost: Mapping[str, float], workers: int) -> Postgres:
    """The PostgreSQL of a load.

    Args:
        load: what there is to do.
        cost: the coefficients' values.
        workers: replicas of all kinds.
    """
    used = (
        cost["postgres_base_cores"]
        + load.crawls * cost["postgres_cores_a_crawl"]
        + load.signals * cost["postgres_cores_a_signal"]
    )
    loading = load.pages * cost["postgres_load_seconds_a_page"]
    connections = math.ceil(workers * cost["postgres_connections_a_worker"])
    memory = (
        cost["postgres_base_bytes"]
        + connections * cost["postgres_connection_bytes"]
        + load.pages * cost["keys_disk_bytes"]
    )
    log = _log(load, cost)
    page = cost["pages_disk_bytes"] + cost["urls_disk_bytes"]
    disk = {
        "pages": DISK_ROOM * load.pages * page,
        "hosts": DISK_ROOM * load.hosts * cost["hosts_disk_bytes"],
        "observations": load.crawls
        * SECONDS_PER_DAY
        * load.observations_days
        * cost["observation_disk_bytes"],
        "log": DISK_ROOM * CHECKPOINT_SECONDS * log,
    }
    return Postgres(
        cores=max(1.0, used / USED_CORES, loading / START_SECONDS),
        memory_bytes=MEMORY_ROOM * memory,
        connections=connections,
        disk_bytes=disk,
        log_bytes_per_second=log,
        reads_per_second=load.crawls + load.signals,
    )


def _log(load: Load, cost: Mapping[str, float]) -> float:
    """Bytes a second. Each checkpoint makes images of all blocks that are changed until the next.

    Pages are taken to be changed in no order: of B blocks, u changes reach B (1 − e^(−u/B)).
    """
    blocks = max(load.pages * cost["pages_disk_bytes"] / BLOCK_BYTES, 1.0)
    changes = (load.crawls + load.signals) * CHECKPOINT_SECONDS
    images = -blocks * math.expm1(-changes / blocks) / CHECKPOINT_SECONDS
    return (
        load.crawls * cost["log_crawl_bytes"]
        + load.signals * cost["log_signal_bytes"]
        + images * cost["log_block_bytes"]
    )


def kafka_for(
    load: Load, cost: Mapping[str, float], shards: int, replicas: Mapping[str, int]
) -> Kafka:
    """The Kafka of a load.

    Args:
        load: what there is to do.
        cost: the coefficients' values.
        shards: partitions of the topics that are keyed by host.
        replicas: of the workers, by name.
    """
    causes = {"crawl": load.crawls, "signal": load.signals, "shard": float(shards)}
    groups = {name: 1 for names in _READERS.values() for name in names} | dict(replicas)
    return Kafka(
        {topic.name: _topic(topic, load, cost, causes, groups) for topic in TOPICS}, load.copies
    )


def _topic(
    topic: Topic,
    load: Load,
    cost: Mapping[str, float],
    causes: Mapping[str, float],
    readers: Mapping[str, int],
) -> TopicSize:
    name = topic.name.replace("-", "_")
    records = sum(
        causes[cause] * cost[f"{name}_records_a_{cause}"] for cause in MESSAGES.get(topic.name, ())
    )
    written = records * cost.get(f"{name}_bytes", 0.0)
    read = sum(readers[reader] for reader in _READERS.get(topic.name, ()))
    return TopicSize(
        partitions=1 if topic.partitioning == "single" else int(causes["shard"]),
        records_per_second=records,
        bytes_per_second=written,
        read_bytes_per_second=read * written,
        disk_bytes=KAFKA_ROOM * load.copies * written * kept_seconds(topic, load.topic_days),
    )


def kept_seconds(topic: Topic, days: float | None) -> float:
    """How long a topic keeps its records; of a compacted one, how long what is superseded stays."""
    kept = topic.config.get("retention.ms") or topic.config["segment.ms"]
    seconds = float(kept) / _MILLISECONDS
    if days is not None and seconds >= LONG_DAYS * SECONDS_PER_DAY:
        return days * SECONDS_PER_DAY
    return seconds
