"""How large an installation must be: replicas, shards, memory, processors, and how soon it is up.

Sums of measured coefficients (`coefficients`) and of a few rules, which stand here with their
reasons. Nothing is looked up in a running system. Who wants more never gets less: of shards,
replicas, and of what all replicas use together.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from services.plan.coefficients import KNOWN
from services.plan.servers import Kafka, Load, Postgres, kafka_for, postgres_for
from shared.contracts.layout import MOST_SHARDS

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

LEAST_MEMORY: Final = 512 * 1024.0**2
"""Of a limit: of workers that hold no pages, bursts are larger than what they use otherwise."""

PAGES_A_HOST: Final = 40.0
"""Where the costs were measured: what a host takes in workers' memory is part of its pages'."""

SPARE: Final = 1
"""One replica may be away: the others have its shards."""

COORDINATORS: Final = 2
"""One leads, the other takes over."""

GI: Final = 1024.0**3

_BY_PAGES: Final = ("scheduler", "estimator")


class TooLarge(ValueError):
    """No number of shards is enough, or a replica has too little memory; the text says which."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the installation is for."""

    load: Load
    memory_bytes: float
    """What one replica may have at most."""
    session_seconds: float
    """A worker that is not heard of for so long is dead."""


@dataclass(frozen=True, slots=True)
class Worker:
    """One kind of worker."""

    replicas: int
    cores: float
    """Of one replica, to be asked for."""
    memory_bytes: float
    """The limit of one replica."""
    used_cores: float
    """By all replicas together."""
    used_memory_bytes: float
    """By all replicas together; at most, while they load."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes; bytes, cores and seconds."""

    shards: int
    workers: Mapping[str, Worker]
    postgres: Postgres
    kafka: Kafka
    start_seconds: float
    """From nothing to every shard served."""
    failover_seconds: float
    """From the death of a scheduler until all of its shards are served again."""


def plan(wanted: Wanted, cost: Mapping[str, float]) -> Plan:
    """Sizes for what is wanted.

    Args:
        wanted: what it is for.
        cost: the coefficients' values, by name, all of them.

    Raises:
        TooLarge: more shards were needed than there can be, or a replica has too little memory.
        KeyError: a coefficient is missing.
    """
    cost = {name: cost[name] for name in KNOWN}
    load = wanted.load
    serving = {name: _serving(name, wanted, cost) for name in _BY_PAGES}
    shards = _shards(load.pages, max(serving.values()) + SPARE)
    workers = {name: _by_pages(name, load, cost, shards, least) for name, least in serving.items()}
    workers["ingester"] = _ingester(load, cost)
    workers["coordinator"] = _coordinator(cost, shards)
    postgres = postgres_for(load, cost, sum(worker.replicas for worker in workers.values()))
    return Plan(
        shards,
        workers,
        postgres,
        kafka_for(load, cost, shards, {name: w.replicas for name, w in workers.items()}),
        start_seconds=_start(load.pages, cost, shards, workers, postgres),
        failover_seconds=_failover(wanted, cost, shards, workers["scheduler"].replicas),
    )


def _shards(pages: float, replicas: int) -> int:
    shards = LEAST_SHARDS
    while shards * MOST_PAGES_A_SHARD < pages or shards < replicas:
        shards *= 2
    if shards > MOST_SHARDS:
        raise TooLarge(
            f"{pages:g} pages and {replicas} replicas want {shards} shards, and there are "
            f"{MOST_SHARDS} at most"
        )
    return shards


def _used_cores(name: str, load: Load, cost: Mapping[str, float]) -> float:
    """What the work of all replicas takes, but for their being there."""
    return (
        load.pages * cost[f"{name}_cores_a_page"]
        + load.crawls * cost[f"{name}_cores_a_crawl"]
        + load.signals * cost[f"{name}_cores_a_signal"]
    )


def _serving(name: str, wanted: Wanted, cost: Mapping[str, float]) -> int:
    """Replicas that are enough, with none to spare."""
    pages = wanted.load.pages
    room = (wanted.memory_bytes / MEMORY_ROOM - cost[f"{name}_base_bytes"]) / max(
        cost[f"{name}_page_bytes"], 1e-9
    )
    # Shards are whole: a replica may have nearly one more than its part of the pages.
    room -= min(MOST_PAGES_A_SHARD, pages / LEAST_SHARDS)
    if room <= 0:
        raise TooLarge(
            f"{wanted.memory_bytes / GI:g} GiB are too little for a {name} with some shards of "
            f"{pages:g} pages: give it more (--memory)"
        )
    work = _used_cores(name, wanted.load, cost)
    return max(math.ceil(pages / room), _at_work(work, cost[f"{name}_base_cores"]))


def _at_work(cores: float, base: float) -> int:
    """How many replicas a work takes, each of which takes something for being there."""
    return max(1, math.ceil(cores / max(USED_CORES - base, 0.1)))


def _by_pages(
    name: str, load: Load, cost: Mapping[str, float], shards: int, serving: int
) -> Worker:
    """A worker that holds its shards' pages in memory."""
    base, page = cost[f"{name}_base_bytes"], cost[f"{name}_page_bytes"]
    work, idle = _used_cores(name, load, cost), cost[f"{name}_base_cores"]
    replicas = serving + SPARE
    # When one is away, the others have all shards between them.
    held = math.ceil(shards / serving) * load.pages / shards
    return Worker(
        replicas,
        max(LOADING_CORES, _rounded(work / serving + idle)),
        MEMORY_ROOM * (base + held * page),
        used_cores=work + replicas * idle,
        used_memory_bytes=replicas * base + load.pages * page,
    )


def _ingester(load: Load, cost: Mapping[str, float]) -> Worker:
    """Holds nothing that grows."""
    work, idle = load.signals * cost["ingester_cores_a_signal"], cost["ingester_base_cores"]
    serving = _at_work(work, idle)
    replicas, base = serving + SPARE, cost["ingester_base_bytes"]
    return Worker(
        replicas,
        _rounded(work / serving + idle),
        max(LEAST_MEMORY, MEMORY_ROOM * base),
        used_cores=work + replicas * idle,
        used_memory_bytes=replicas * base,
    )


def _coordinator(cost: Mapping[str, float], shards: int) -> Worker:
    """Each of them follows all shards."""
    base = cost["coordinator_base_bytes"]
    work = cost["coordinator_base_cores"] + shards * cost["coordinator_cores_a_shard"]
    return Worker(
        COORDINATORS,
        _rounded(work),
        max(LEAST_MEMORY, MEMORY_ROOM * base),
        used_cores=COORDINATORS * work,
        used_memory_bytes=COORDINATORS * base,
    )


def _rounded(cores: float) -> float:
    """What is asked for, so that `USED_CORES` of it are used; quarters of a core."""
    return max(0.25, math.ceil(4 * cores / USED_CORES) / 4)


def _start(
    pages: float,
    cost: Mapping[str, float],
    shards: int,
    workers: Mapping[str, Worker],
    postgres: Postgres,
) -> float:
    """All load at once, and one PostgreSQL hands all pages out."""
    ready = []
    for name in _BY_PAGES:
        held = math.ceil(shards / workers[name].replicas) * pages / shards
        loading = held * cost[f"{name}_load_seconds_a_page"]
        ready.append(cost[f"{name}_start_seconds"] + loading)
    handing_out = pages * cost["postgres_load_seconds_a_page"] / postgres.cores
    return max(*ready, handing_out)


def _failover(wanted: Wanted, cost: Mapping[str, float], shards: int, replicas: int) -> float:
    """The dead one's shards are shared among the others, each of which loads them in turn."""
    moved = math.ceil(math.ceil(shards / replicas) / max(replicas - 1, 1))
    loading = moved * wanted.load.pages / shards * cost["scheduler_load_seconds_a_page"]
    return wanted.session_seconds + cost["handover_seconds"] + loading
