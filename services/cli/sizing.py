"""How large an installation must be: replicas, shards, memory, processors and disk.

Sums of measured coefficients (`measured.yml`, each with the command that measured it) and of a few
rules, which stand here with their reasons. Nothing is looked up in a running system.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from shared.contracts.layout import MOST_SHARDS
from shared.units import SECONDS_PER_DAY

MEASURED_FILE: Final = Path(__file__).with_name("measured.yml")

MOST_PAGES_A_SHARD: Final = 4_000_000
"""A larger shard is served too late after it has moved."""

LEAST_SHARDS: Final = 64
"""Few are cheap, and to have more later takes a growth of shards."""

USED_CORES: Final = 0.5
"""Of a core that a worker has: the rest is for bursts, and for the shards of one that died."""

LOADING_CORES: Final = 1.0
"""Who has shards loads them: that takes a core."""

MEMORY_ROOM: Final = 1.25
"""The limit over what is needed: a process that reaches it is killed."""

DISK_ROOM: Final = 2.0
"""Over what is needed: updates leave room behind them, and a table can be written anew."""

KAFKA_ROOM: Final = 1.5

CHECKPOINT_SECONDS: Final = 900.0
"""As docker-compose.yml has it: the log between checkpoints stays on the disk."""

REQUEST_DAYS: Final = 1.0
OUTCOME_DAYS: Final = 7.0
SIGNAL_DAYS: Final = 8.0
"""A day on `signals`, seven on `page-signals`: what the topics keep."""

SPARE: Final = 1
"""One replica may be away: the others have its shards."""

MI: Final = 1024.0**2
GI: Final = 1024.0**3


class Coefficient(msgspec.Struct, frozen=True):
    """A cost, and how it was measured."""

    value: float
    what: str
    command: str


class TooLarge(ValueError):
    """No number of shards is enough; the text says why."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the installation is for."""

    pages: float
    crawls_per_second: float
    signals_per_second: float
    memory_bytes: float
    """What one replica may have at most."""
    observations_days: float
    """Kept so long."""
    copies: int
    """Of each record on Kafka."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One kind of worker."""

    replicas: int
    cores: float
    """Of one replica, to be asked for."""
    memory_bytes: float
    """The limit of one replica."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; bytes and cores."""

    shards: int
    workers: Mapping[str, Worker]
    shard_load_seconds: float
    """A shard that moves is served again after so long."""
    postgres_cores: float
    postgres_disk_bytes: Mapping[str, float]
    kafka_disk_bytes: float
    """On all brokers together."""


def read_measured() -> dict[str, Coefficient]:
    """The coefficients, by name."""
    return msgspec.yaml.decode(MEASURED_FILE.read_bytes(), type=dict[str, Coefficient])


def plan(wanted: Wanted, cost: Mapping[str, float]) -> Plan:
    """Sizes for what is wanted.

    Args:
        wanted: what it is for.
        cost: the coefficients' values, by name.

    Raises:
        TooLarge: more shards were needed than there can be, or a replica has too little memory.
    """
    pages, crawls = wanted.pages, wanted.crawls_per_second
    shards = LEAST_SHARDS
    while shards * MOST_PAGES_A_SHARD < pages:
        shards *= 2
    if shards > MOST_SHARDS:
        raise TooLarge(f"{pages:g} pages want {shards} shards, and there are {MOST_SHARDS} at most")
    workers = {
        name: _by_pages(
            name,
            wanted,
            shards,
            base=cost[f"{name}_base_bytes"],
            page=cost[f"{name}_page_bytes"],
            cores=crawls * cost[f"{name}_cores_a_crawl"],
        )
        for name in ("scheduler", "estimator")
    }
    workers["ingester"] = _by_work(wanted.signals_per_second * cost["ingester_cores_a_signal"])
    workers["coordinator"] = Worker(replicas=2, cores=0.25, memory_bytes=GI)
    return Plan(
        shards,
        workers,
        shard_load_seconds=pages / shards * cost["load_seconds_a_page"],
        postgres_cores=max(1.0, crawls * cost["postgres_cores_a_crawl"] / USED_CORES),
        postgres_disk_bytes=_postgres_disk(wanted, cost),
        kafka_disk_bytes=_kafka_disk(wanted, cost),
    )


def _by_pages(
    name: str, wanted: Wanted, shards: int, *, base: float, page: float, cores: float
) -> Worker:
    """A worker that holds its shards' pages in memory; shards are whole."""
    most_pages = (wanted.memory_bytes / MEMORY_ROOM - base) / page
    most_shards = math.floor(most_pages / (wanted.pages / shards))
    if most_shards < 1:
        raise TooLarge(
            f"a shard of {wanted.pages / shards:g} pages does not fit into a {name} with "
            f"{wanted.memory_bytes / GI:g} GiB: give it more (--memory)"
        )
    least = max(math.ceil(shards / most_shards), math.ceil(cores / USED_CORES))
    replicas = min(least + SPARE, shards)
    # When one is away, the others have all shards between them.
    serving = max(replicas - SPARE, 1)
    held = math.ceil(shards / serving) * wanted.pages / shards
    asked = max(LOADING_CORES, _rounded(cores / serving))
    return Worker(replicas, asked, MEMORY_ROOM * (base + held * page))


def _by_work(cores: float) -> Worker:
    """A worker that holds nothing."""
    serving = max(1, math.ceil(cores / USED_CORES))
    return Worker(serving + SPARE, _rounded(cores / serving), GI)


def _rounded(cores: float) -> float:
    """What is asked for, so that `USED_CORES` of it are used; quarters of a core."""
    return max(0.25, math.ceil(4 * cores / USED_CORES) / 4)


def _postgres_disk(wanted: Wanted, cost: Mapping[str, float]) -> dict[str, float]:
    crawls = wanted.crawls_per_second
    return {
        "pages": DISK_ROOM * wanted.pages * (cost["pages_disk_bytes"] + cost["urls_disk_bytes"]),
        "observations": crawls
        * SECONDS_PER_DAY
        * wanted.observations_days
        * cost["observation_disk_bytes"],
        "log": DISK_ROOM
        * CHECKPOINT_SECONDS
        * cost["update_log_bytes"]
        * (crawls + wanted.signals_per_second),
    }


def _kafka_disk(wanted: Wanted, cost: Mapping[str, float]) -> float:
    crawls = wanted.crawls_per_second
    a_day = (
        crawls * REQUEST_DAYS * cost["request_bytes"]
        + crawls * OUTCOME_DAYS * cost["outcome_bytes"]
        + wanted.signals_per_second * SIGNAL_DAYS * cost["outcome_bytes"]
    )
    return KAFKA_ROOM * wanted.copies * SECONDS_PER_DAY * a_day


def values_of(sizes: Plan) -> dict[str, Any]:
    """The part of the chart's `values.yaml` that says so."""
    workers = {}
    for name, worker in sizes.workers.items():
        memory = f"{math.ceil(worker.memory_bytes / (256 * MI)) * 256}Mi"
        workers[name] = {
            "replicas": worker.replicas,
            "resources": {
                "requests": {"cpu": f"{round(1000 * worker.cores)}m", "memory": memory},
                "limits": {"memory": memory},
            },
        }
    return {"shards": sizes.shards, "workers": workers}
