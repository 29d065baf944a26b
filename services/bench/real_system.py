"""All processes of `freshet run` on this machine, for benchmarks that change things on the way."""

import asyncio
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import numpy as np
from aiokafka import TopicPartition
from numpy.typing import NDArray

from services.bench.flame_graphs import pythons
from services.bench.processor_time import Usage, usage_of, usage_with_children
from services.run.options import CLOCK_ORIGIN, RunOptions
from services.run.preparing import make_plan, prepare_system, publish_budget
from services.run.readiness import wait_until_ready
from services.run.stack import LOOPBACK, Stack
from services.world.importing import import_world
from services.world.plan import write_plan
from shared.contracts.codec import decode
from shared.contracts.messages import CrawlRequest
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.clock import open_gate
from shared.runtime.kafka import make_consumer
from shared.units import SECONDS_PER_DAY

_CLEAN_UP_SECONDS: Final = 20.0
_LAG: Final = "freshet_consumer_lag_records"


@dataclass(frozen=True, slots=True)
class Requests:
    """All records of `crawl-requests`, in the order of their slots; seconds since the start."""

    slots: NDArray[np.float64]
    written: NDArray[np.float64]
    """When the broker got them."""
    shards: NDArray[np.int64]

    def within(self, start: float, end: float) -> "Requests":
        """Those with slots in [start, end)."""
        first, last = np.searchsorted(self.slots, [start, end])
        part = slice(first, last)
        return Requests(self.slots[part], self.written[part], self.shards[part])


class RealSystem:
    """A stack with a generated world; use it in `stack.locked()`, and stop it."""

    def __init__(self, options: RunOptions) -> None:
        self.stack = Stack(options)
        self.began = 0.0
        """Wall time at which the clock began to run."""
        self.setup_seconds: dict[str, float] = {}

    def now(self) -> float:
        """Wall seconds since the clock began to run."""
        return time.time() - self.began

    async def start(self, imported: Callable[[str], None] | None = None) -> None:
        """Import the pages, start everything, and let the clock run.

        Args:
            imported: called with the database's address between import and start.
        """
        stack, options = self.stack, self.stack.options
        await stack.start_servers()
        await prepare_system(stack.settings, own_database=stack.own_database, must_be_empty=False)
        plan = make_plan(options, stack.status_file, stack.result_file)
        write_plan(plan, stack.plan_file)
        before = time.monotonic()
        await import_world(stack.settings, plan, lambda _done, _of: None)
        self.setup_seconds["import"] = round(time.monotonic() - before, 1)
        if imported is not None:
            await asyncio.to_thread(imported, stack.settings.database_url.get_secret_value())
        await self.set_rate(options.budget[0].crawls_per_second * self._speed)
        before = time.monotonic()
        await stack.supervisor.start([*stack.workers(), stack.world()])
        await wait_until_ready(stack)
        self.setup_seconds["start"] = round(time.monotonic() - before, 1)
        if stack.gate is not None:
            open_gate(stack.gate)
            self.began = float(stack.gate.read_text())

    async def set_rate(self, crawls_per_wall_second: float) -> None:
        """Change the budget."""
        await publish_budget(self.stack.settings, crawls_per_wall_second / self._speed)

    async def ask(self, name: str, path: str) -> Any:
        """What a process says of itself, as JSON."""
        async with aiohttp.ClientSession() as client, client.get(self._url(name, path)) as answer:
            return await answer.json()

    async def lags(self) -> dict[str, int]:
        """Records that workers have not read yet, by worker and topic, where there are any."""
        lags = {}
        async with aiohttp.ClientSession() as client:
            for name in self.stack.ports:
                if name == "world":
                    continue
                async with client.get(self._url(name, "/metrics")) as answer:
                    text = await answer.text()
                for line in text.splitlines():
                    if line.startswith(_LAG + "{"):
                        topic, value = line.split('"')[1], float(line.rpartition(" ")[2])
                        lags[f"{name} {topic}"] = int(value)
        return {place: lag for place, lag in lags.items() if lag}

    def usage(self) -> dict[str, Usage]:
        """What each process has used so far; PostgreSQL's are one."""
        return {
            child.name: (usage_with_children if child.name == "postgres" else usage_of)(child.pid)
            for child in self.stack.supervisor.children()
            if child.pid is not None
        }

    def pythons(self) -> dict[str, int]:
        """Processes that are Python programs, by name → process id."""
        return pythons((child.name, child.pid) for child in self.stack.supervisor.children())

    async def kill(self, name: str) -> None:
        """End a process by SIGKILL, for good."""
        for child in self.stack.supervisor.children():
            if child.name == name and child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)
        await self.stack.supervisor.end(name, grace_seconds=0.0)

    async def requests(self) -> Requests:
        """All requests there ever were."""
        settings = self.stack.settings
        consumer = make_consumer(settings)
        await consumer.start()
        slots: list[float] = []
        written: list[int] = []
        shards: list[int] = []
        try:
            name = settings.topic(CRAWL_REQUESTS.name)
            partitions = [TopicPartition(name, shard) for shard in range(settings.partitions)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            await consumer.seek_to_beginning(*partitions)
            for partition in partitions:
                while await consumer.position(partition) < ends[partition]:
                    fetched = await consumer.getmany(timeout_ms=500)
                    for place, records in fetched.items():
                        shards += [place.partition] * len(records)
                        written += [record.timestamp for record in records]
                        slots += [decode(CrawlRequest, r.value).requested_at for r in records]
        finally:
            await consumer.stop()
        seconds = (np.array(slots) - CLOCK_ORIGIN) / self._speed
        order = np.argsort(seconds, kind="stable")
        return Requests(
            seconds[order],
            (np.array(written) / 1000.0 - self.began)[order],
            np.array(shards, np.int64)[order],
        )

    async def stop(self) -> None:
        """End all processes."""
        await self.stack.stop()

    @property
    def _speed(self) -> float:
        return self.stack.options.speed * SECONDS_PER_DAY

    def _url(self, name: str, path: str) -> str:
        return f"http://{LOOPBACK}:{self.stack.ports[name]}{path}"


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A folder that is gone afterwards, even if a server that was killed still writes to it."""
    folder = Path(tempfile.mkdtemp(prefix="freshet-bench-"))
    try:
        yield folder
    finally:
        deadline = time.monotonic() + _CLEAN_UP_SECONDS
        while folder.exists() and time.monotonic() < deadline:
            shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.1)


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """A setting for all processes that are started meanwhile."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


async def until_steady(system: RealSystem, good_seconds: int, patience: float) -> bool:
    """Whether the coordinator sees the budget met for some seconds on end before it is too late."""
    good, deadline = 0, time.monotonic() + patience
    while good < good_seconds and time.monotonic() < deadline:
        await asyncio.sleep(1.0)
        state = await system.ask("coordinator", "/state.json")
        good = good + 1 if state["now"]["achieved_ratio"] > 0.95 else 0
    return good >= good_seconds
