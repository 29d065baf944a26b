"""Many shards in one process: how long its one thread is busy at once, beside a single shard."""

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, ParamSpec, TypeVar, cast

import numpy as np

from services.bench.scheduled_pages import Population, make_filled_shard
from services.bench.scheduler_driver import CRAWLS_PER_SECOND, SIGNALS_PER_SECOND, Driver
from services.bench.timing import thread_seconds
from services.scheduler.flow.reporting import Reporting
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.state.rows import NEVER
from services.scheduler.warm_up import warm_up

P = ParamSpec("P")
T = TypeVar("T")

_TICK_SECONDS: Final = 0.1
_PAGES_PER_HOST: Final = 50
_PAGES_PER_HOST_OF_MANY: Final = 10
_SLOW: Final = 1e-3
"""Crawls per second of a slow host."""

_LARGE: Final = 1.0
"""Crawls per second of the large host."""

_FAST: Final = 200.0
"""The same where it may be crawled often: it uses up what is kept of its pages in seconds."""

_UNLIMITED: Final = 1e9
_PHASES: Final = (("steady", 1.0), ("twice", 2.0), ("half of that", 1.0))
"""Name, factor of the bandwidth."""


class _TimedThread(ShardThread):
    """Notes how long each function keeps the thread: processor seconds, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.spent: dict[str, list[float]] = {}

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it, and note how long that took."""

        def timed() -> T:
            started = thread_seconds()
            try:
                return function(*args, **kwargs)
            finally:
                name = getattr(function, "__name__", "")
                self.spent.setdefault(name.strip("_"), []).append(thread_seconds() - started)

        return await super().run(timed)


class _Process:
    """A scheduler's shards, without Kafka."""

    def __init__(self, drivers: Sequence[Driver], multiplier: float) -> None:
        self.drivers, self.multiplier = drivers, multiplier
        for number, driver in enumerate(drivers):
            driver.shard.number = number
            driver.shard.selector.share_work(len(drivers), number)
        self.shards = {driver.shard.number: driver.shard for driver in drivers}
        self.ticks: list[float] = []
        """Processor seconds of each; what was drawn for it is not counted."""
        self._whole = sum(driver.shard.used for driver in drivers)

    @property
    def now(self) -> float:
        """The time of the shards."""
        return self.drivers[0].now

    def tick(self, factor: float) -> None:
        """Events and slots of all shards, by their pages."""
        before = self._spent()
        for driver in self.drivers:
            part = driver.shard.used / self._whole
            rate = factor * part * CRAWLS_PER_SECOND
            driver.tick(_TICK_SECONDS, rate, part * SIGNALS_PER_SECOND)
        self.ticks.append(self._spent() - before)

    def _spent(self) -> float:
        return sum(driver.select_cpu + driver.event_cpu for driver in self.drivers)


def run(pages: int, shards: int, seconds: float, seed: int) -> list[dict[str, Any]]:
    """So many shards, and one, with the same pages of five kinds.

    Of `varied` pages; on `many hosts`, a twentieth of them with limits; half of them of `one large
    host` that takes one crawl a second, or of `one fast host` that takes many; all of them `new`,
    of slow hosts.

    Args:
        pages: of all shards together.
        shards: of the one process; the other has one.
        seconds: of the wall, for each phase after the first second: steady, with twice the
            bandwidth, and as before.
        seed: of the random pages.

    Returns:
        for each kind, number of shards and phase, `p99_tick_ms`, `longest_tick_ms` and
        `mean_tick_ms` of all shards together; and `longest_ms`, by what else kept the thread.
        Processor time of it all.
    """
    warm_up()
    found = []
    for name, make in _KINDS.items():
        for count in (1, shards):
            process = make(pages, count, seed)
            # As where shards are loaded: beside those that are there, not in their thread.
            for driver in process.drivers:
                driver.shard.prepare(process.now)
            found += [
                {"pages": name, "shards": count} | phase
                for phase in asyncio.run(_measured(process, seconds))
            ]
            del process
    return found


async def _measured(process: _Process, seconds: float) -> list[dict[str, Any]]:
    thread, stopping = _TimedThread(), asyncio.Event()
    plan = SimpleNamespace(multiplier=process.multiplier)
    reporting = Reporting(
        cast("Any", SimpleNamespace(report_seconds=1.0, instance="bench")),
        cast("Any", SimpleNamespace(now=lambda: process.now, span=lambda span: span)),
        cast("Any", SimpleNamespace(send=_to_nobody)),
        thread,
        cast("Any", process),
        cast("Any", SimpleNamespace(at=lambda _: plan)),
    )
    loops = [
        asyncio.create_task(reporting.run_demand(stopping)),
        asyncio.create_task(reporting.run_reports(stopping)),
    ]
    found = []
    try:
        for name, factor in (("first second", 1.0), *_PHASES):
            thread.spent.clear()
            process.ticks.clear()
            await _let_pass(process, thread, factor, 1.0 if name == "first second" else seconds)
            found.append({"phase": name} | _figures(process.ticks, thread.spent))
    finally:
        stopping.set()
        await asyncio.gather(*loops)
        thread.close()
    return found


async def _let_pass(process: _Process, thread: ShardThread, factor: float, seconds: float) -> None:
    due = time.monotonic()
    for _ in range(round(seconds / _TICK_SECONDS)):
        due = max(due + _TICK_SECONDS, time.monotonic())
        await asyncio.sleep(due - time.monotonic())
        await thread.run(process.tick, factor)


def _figures(ticks: list[float], spent: dict[str, list[float]]) -> dict[str, Any]:
    spent.pop("tick")
    return {
        "p99_tick_ms": round(float(np.quantile(ticks, 0.99)) * 1e3, 2),
        "longest_tick_ms": round(max(ticks) * 1e3, 2),
        "mean_tick_ms": round(float(np.mean(ticks)) * 1e3, 2),
        "longest_ms": {name: round(max(times) * 1e3, 2) for name, times in spent.items()},
    }


async def _to_nobody(*_record: object, **_where: object) -> None:
    """Takes the reports."""


def _population(pages: int, part: float, hosts: int, seed: int) -> Population:
    return Population(
        pages, part * CRAWLS_PER_SECOND, part * SIGNALS_PER_SECOND, max(hosts, 1), seed
    )


def _varied(pages: int, shards: int, seed: int) -> _Process:
    return _equal(pages, shards, seed, _PAGES_PER_HOST)


def _many_hosts(pages: int, shards: int, seed: int) -> _Process:
    return _equal(pages, shards, seed, _PAGES_PER_HOST_OF_MANY, limited=0.05)


def _equal(
    pages: int, shards: int, seed: int, pages_per_host: int, limited: float = 0.0
) -> _Process:
    own, drivers, multiplier = pages // shards, [], 0.0
    for number in range(shards):
        population = _population(own, 1.0 / shards, own // pages_per_host, seed + number)
        random = np.random.default_rng((seed, number))
        is_limited = random.random(population.hosts) < limited
        share = 0.3 * CRAWLS_PER_SECOND / shards / population.hosts
        rates = np.where(is_limited, share, _UNLIMITED)
        shard, multiplier = make_filled_shard(population, rates)
        drivers.append(Driver(shard, seed + number))
    return _Process(drivers, multiplier)


def _large_host(pages: int, shards: int, seed: int, rate: float = _LARGE) -> _Process:
    process = _varied(pages // 2, shards, seed)
    population = _population(pages // 2, 0.5, 1, seed - 1)
    shard, _ = make_filled_shard(population, np.array([rate]))
    return _Process([*process.drivers, Driver(shard, seed)], process.multiplier)


def _new(pages: int, shards: int, seed: int) -> _Process:
    process = _varied(pages, shards, seed)
    for driver in process.drivers:
        shard = driver.shard
        shard.pages["last_crawled_at"][: shard.used] = NEVER
        shard.pages["signals"][: shard.used] = 0.0
        shard.hosts.rows["rate"][: shard.host_count] = _SLOW
    return process


_KINDS: Final[dict[str, Callable[[int, int, int], _Process]]] = {
    "varied": _varied,
    "many hosts": _many_hosts,
    "one large host": _large_host,
    "one fast host": partial(_large_host, rate=_FAST),
    "new": _new,
}
