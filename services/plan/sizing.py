"""How large an installation must be: replicas, shards, memory, processors, and how soon it is up.

Sums of measured coefficients (`coefficients`) and of a few rules, which stand here with their
reasons. Nothing is looked up in a running system. Who wants more never gets less: of shards,
replicas, and of what all replicas use together.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from services.plan.coefficients import KNOWN
from services.plan.servers import MEMORY_ROOM, Kafka, Load, Postgres, kafka_for, postgres_for
from shared.contracts.layout import MOST_SHARDS

MOST_PAGES_A_SHARD: Final = 4_000_000
"""A larger shard is served too late after it has moved."""

LEAST_SHARDS: Final = 64
"""Few are cheap, and to have more later takes a growth of shards."""

USED_CORES: Final = 0.5
"""Of a core that a worker has: the rest is for bursts, and for the shards of one that died."""

LOADING_CORES: Final = 1.0
"""Who has shards loads them: that takes a core."""

LEAST_MEMORY: Final = 512 * 1024.0**2
"""Of a limit: of workers that hold no pages, bursts are larger than what they use otherwise."""

PAGES_A_HOST: Final = 40.0
"""Where the costs were measured: what a host takes in workers' memory is part of its pages'."""

SPARE: Final = 1
"""One replica may be away: the others have its shards."""

COORDINATORS: Final = 2
"""One leads, the other takes over."""

VIEWS: Final = 2
"""Processes of a coordinator that look things up, while somebody looks at its page."""

VIEW_BYTES: Final = 250e6
"""Of each of them."""

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
    resident_pages: float
    """Pages that an estimator keeps in memory at most; others are read as they are named."""


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
    cost = _with_reads({name: cost[name] for name in KNOWN}, wanted)
    load = wanted.load
    _shards(load.pages, SPARE)  # whether there can be as many says more than what follows of it
    serving = {name: _serving(name, wanted, cost) for name in _BY_PAGES}
    shards = _shards(load.pages, max(serving.values()) + SPARE)
    workers = {
        name: _by_pages(name, wanted, cost, shards, least) for name, least in serving.items()
    }
    workers["ingester"] = _ingester(load, cost)
    workers["coordinator"] = _coordinator(cost, shards)
    postgres = postgres_for(load, cost, sum(worker.replicas for worker in workers.values()))
    return Plan(
        shards,
        workers,
        postgres,
        kafka_for(load, cost, shards, {name: w.replicas for name, w in workers.items()}),
        start_seconds=_start(wanted, cost, shards, workers, postgres),
        failover_seconds=_failover(wanted, cost, shards, workers["scheduler"].replicas),
    )


def _with_reads(cost: Mapping[str, float], wanted: Wanted) -> Mapping[str, float]:
    """Costs where each crawl and signal has an estimator read its page by its id."""
    if wanted.load.pages <= wanted.resident_pages:
        return cost
    return {
        **cost,
        **{
            f"{name}_cores_a_{cause}": cost[f"{name}_cores_a_{cause}"]
            + cost[f"{name}_cores_a_read"]
            for name in ("estimator", "postgres")
            for cause in ("crawl", "signal")
        },
    }


def _shards(pages: float, replicas: int) -> int:
    most = MOST_SHARDS * MOST_PAGES_A_SHARD
    if pages > most:
        raise TooLarge(
            f"{pages:g} pages are more than the {most:.5g} of one installation ({MOST_SHARDS} "
            f"shards of {MOST_PAGES_A_SHARD:,} pages at most): ask for fewer (--pages), and share "
            "the hosts out among several installations"
        )
    shards = LEAST_SHARDS
    while shards * MOST_PAGES_A_SHARD < pages or shards < replicas:
        shards *= 2
    if shards > MOST_SHARDS:
        raise TooLarge(
            f"{pages:g} pages want more than {MOST_SHARDS} replicas of a worker, and there are no "
            "more shards than that, one for each: give a replica more memory (--memory), or share "
            "the hosts out among several installations"
        )
    return shards


def _used_cores(name: str, load: Load, cost: Mapping[str, float]) -> float:
    """What the work of all replicas takes, but for their being there."""
    return (
        load.pages * cost[f"{name}_cores_a_page"]
        + load.crawls * cost[f"{name}_cores_a_crawl"]
        + load.signals * cost[f"{name}_cores_a_signal"]
    )


def _held_bytes(
    name: str, wanted: Wanted, cost: Mapping[str, float], pages: float, hosts: float
) -> float:
    """Memory for what a replica holds: a scheduler all of its pages, an estimator its hosts, and
    some of its pages."""
    page = cost[f"{name}_page_bytes"]
    if name == "scheduler":
        return pages * page
    return min(pages, wanted.resident_pages) * page + hosts * cost["estimator_host_bytes"]


def _serving(name: str, wanted: Wanted, cost: Mapping[str, float]) -> int:
    """Replicas that are enough, with none to spare."""
    load = wanted.load
    room = wanted.memory_bytes / MEMORY_ROOM - cost[f"{name}_base_bytes"]
    # Shards are whole: a replica may have nearly one more than its part.
    pages, hosts = min(MOST_PAGES_A_SHARD, load.pages / LEAST_SHARDS), load.hosts / LEAST_SHARDS

    def is_enough(replicas: int) -> bool:
        mine = load.pages / replicas + pages, load.hosts / replicas + hosts
        return _held_bytes(name, wanted, cost, *mine) <= room

    if _held_bytes(name, wanted, cost, pages, hosts) >= room:
        raise TooLarge(
            f"{wanted.memory_bytes / GI:g} GiB are too little for one {name} with some shards of "
            f"{load.pages:g} pages on {load.hosts:g} hosts: give it more (--memory)"
        )
    # More than there can be shards are refused later.
    by_memory = bisect_left(range(2 * MOST_SHARDS), True, lo=1, key=is_enough)
    work = _used_cores(name, load, cost)
    return max(by_memory, _at_work(work, cost[f"{name}_base_cores"]))


def _at_work(cores: float, base: float) -> int:
    """How many replicas a work takes, each of which takes something for being there."""
    return max(1, math.ceil(cores / max(USED_CORES - base, 0.1)))


def _by_pages(
    name: str, wanted: Wanted, cost: Mapping[str, float], shards: int, serving: int
) -> Worker:
    """A worker that holds its shards' pages or hosts in memory."""
    load, base = wanted.load, cost[f"{name}_base_bytes"]
    work, idle = _used_cores(name, load, cost), cost[f"{name}_base_cores"]
    replicas = serving + SPARE
    # When one is away, the others have all shards between them.
    part = math.ceil(shards / serving) / shards
    held = _held_bytes(name, wanted, cost, part * load.pages, part * load.hosts)
    together = replace(wanted, resident_pages=replicas * wanted.resident_pages)
    return Worker(
        replicas,
        max(LOADING_CORES, _rounded(work / serving + idle)),
        MEMORY_ROOM * (base + held),
        used_cores=work + replicas * idle,
        used_memory_bytes=replicas * base
        + _held_bytes(name, together, cost, load.pages, load.hosts),
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
    """Each of them follows all shards, and may be the one whose page somebody looks at."""
    base = cost["coordinator_base_bytes"] + VIEWS * VIEW_BYTES
    work = cost["coordinator_base_cores"] + shards * cost["coordinator_cores_a_shard"]
    return Worker(
        COORDINATORS,
        _rounded(work),
        MEMORY_ROOM * base,
        used_cores=COORDINATORS * work,
        used_memory_bytes=COORDINATORS * base,
    )


def _rounded(cores: float) -> float:
    """What is asked for, so that `USED_CORES` of it are used; quarters of a core."""
    return max(0.25, math.ceil(4 * cores / USED_CORES) / 4)


def _start(
    wanted: Wanted,
    cost: Mapping[str, float],
    shards: int,
    workers: Mapping[str, Worker],
    postgres: Postgres,
) -> float:
    """All load at once, and one PostgreSQL hands all pages out."""
    pages, ready = wanted.load.pages, []
    for name in _BY_PAGES:
        held = math.ceil(shards / workers[name].replicas) * pages / shards
        if name == "estimator":
            held = min(held, wanted.resident_pages)
        loading = held * cost[f"{name}_load_seconds_a_page"]
        ready.append(cost[f"{name}_start_seconds"] + loading)
    handing_out = pages * cost["postgres_load_seconds_a_page"] / postgres.cores
    return max(*ready, handing_out)


def _failover(wanted: Wanted, cost: Mapping[str, float], shards: int, replicas: int) -> float:
    """The dead one's shards are shared among the others, each of which loads them in turn."""
    moved = math.ceil(math.ceil(shards / replicas) / max(replicas - 1, 1))
    loading = moved * wanted.load.pages / shards * cost["scheduler_load_seconds_a_page"]
    return wanted.session_seconds + cost["handover_seconds"] + loading
