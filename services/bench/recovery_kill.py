"""Kill -9 of one of two schedulers, with real processes: when are its shards served again?"""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any, Final

import aiohttp
import click
import numpy as np
from aiokafka import TopicPartition
from numpy.typing import NDArray

from services.cli.running.loading import load_pages, make_plan, prepare_system, publish_budget
from services.cli.running.options import CLOCK_ORIGIN, RunOptions
from services.cli.running.readiness import wait_until_ready
from services.cli.running.stack import LOOPBACK, Stack
from services.world.plan import BudgetStep, write_plan
from shared.contracts.codec import decode
from shared.contracts.messages import CrawlRequest
from shared.contracts.topics import CRAWL_REQUESTS
from shared.runtime.clock import SECONDS_PER_DAY, open_gate
from shared.runtime.kafka import make_consumer

SHARDS: Final = 8
DAYS_PER_SECOND: Final = 0.02
WATCHED_SECONDS: Final = 30.0
"""After the kill; the dead scheduler stays away."""

_GOOD_SECONDS: Final = 5
_PATIENCE_SECONDS: Final = 120.0


class Killing:
    """One run: both schedulers crawl at the budget, one is killed, the other takes over."""

    def __init__(self, folder: Path, pages: int, rate: float) -> None:
        self._rate = rate
        self._speed = DAYS_PER_SECOND * SECONDS_PER_DAY
        options = RunOptions(
            world="generated",
            data_dir=folder,
            partitions=SHARDS,
            schedulers=2,
            pages=pages,
            speed=DAYS_PER_SECOND,
            budget=(BudgetStep(0.0, rate / self._speed),),
        )
        self._stack = Stack(options)
        self._began = 0.0

    async def run(self) -> dict[str, Any]:
        """What happened; times in seconds of the wall after the kill."""
        with self._stack.locked():
            try:
                await self._start()
                await self._until_steady()
                victim, shards = await self._victim()
                killed = time.time() - self._began
                await self._kill(victim)
                await asyncio.sleep(WATCHED_SECONDS)
                times, owners = await self._requests()
            finally:
                await self._stack.stop()
        return {
            "pages": self._stack.options.pages,
            "shards": SHARDS,
            "crawls_per_second": self._rate,
            "killed_after_seconds": round(killed, 1),
            **served_again(times, owners, shards, killed),
        }

    async def _start(self) -> None:
        stack, options = self._stack, self._stack.options
        await stack.start_servers()
        await prepare_system(stack.settings, must_be_empty=False)
        plan = make_plan(options, stack.status_file, stack.result_file)
        write_plan(plan, stack.plan_file)
        await load_pages(stack.settings, plan, lambda _done, _of: None)
        await publish_budget(stack.settings, self._rate / self._speed)
        await stack.supervisor.start([*stack.workers(), stack.world()])
        await wait_until_ready(stack)
        if stack.gate is not None:
            open_gate(stack.gate)
            self._began = float(stack.gate.read_text())

    async def _until_steady(self) -> None:
        """Until the coordinator has seen the budget met for some seconds.

        Raises:
            click.ClickException: it never does.
        """
        good, deadline = 0, time.monotonic() + _PATIENCE_SECONDS
        while good < _GOOD_SECONDS:
            if time.monotonic() > deadline:
                raise click.ClickException(f"{self._rate} crawls/s are not reached: lower --rate")
            await asyncio.sleep(1.0)
            state = await self._ask("coordinator", "/state.json")
            good = good + 1 if state["now"]["achieved_ratio"] > 0.95 else 0

    async def _victim(self) -> tuple[str, set[int]]:
        """The scheduler that is killed, and its shards."""
        name = next(name for name in self._stack.ports if name.startswith("scheduler"))
        shards = (await self._ask(name, "/shards"))["shards"]
        return name, {int(shard["shard"]) for shard in shards}

    async def _kill(self, name: str) -> None:
        for child in self._stack.supervisor.children():
            if child.name == name and child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)
        await self._stack.supervisor.end(name, grace_seconds=0.0)

    async def _ask(self, name: str, path: str) -> Any:
        url = f"http://{LOOPBACK}:{self._stack.ports[name]}{path}"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            return await answer.json()

    async def _requests(self) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """`requested_at` of all requests, in seconds of the wall since the start, and shards."""
        consumer = make_consumer(self._stack.settings)
        await consumer.start()
        try:
            name = self._stack.settings.topic(CRAWL_REQUESTS.name)
            partitions = [TopicPartition(name, shard) for shard in range(SHARDS)]
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            await consumer.seek_to_beginning(*partitions)
            times: list[float] = []
            shards: list[int] = []
            for partition in partitions:
                while await consumer.position(partition) < ends[partition]:
                    fetched = await consumer.getmany(timeout_ms=500)
                    for place, records in fetched.items():
                        shards += [place.partition] * len(records)
                        times += [decode(CrawlRequest, r.value).requested_at for r in records]
        finally:
            await consumer.stop()
        wall = (np.array(times) - CLOCK_ORIGIN) / self._speed
        return wall, np.array(shards, np.int64)


def served_again(
    times: NDArray[np.float64], owners: NDArray[np.int64], shards: set[int], killed: float
) -> dict[str, Any]:
    """When shards were served again.

    Args:
        times: of all requests, seconds.
        owners: shard of each.
        shards: of the killed scheduler.
        killed: when.

    Returns:
        `seconds_until_served`: from the kill to the first request of the last of its shards, None
        if one has none; `by_shard`; `longest_gap_of_others_seconds` in the same time.
    """
    later = times > killed
    first = {
        shard: float(times[later & (owners == shard)].min() - killed)
        for shard in sorted(shards)
        if (later & (owners == shard)).any()
    }
    others = np.sort(times[later & ~np.isin(owners, list(shards))])
    return {
        "shards_of_the_killed": sorted(shards),
        "seconds_until_served": (
            round(max(first.values()), 3) if shards and first.keys() == shards else None
        ),
        "by_shard": {str(shard): round(seconds, 3) for shard, seconds in first.items()},
        "longest_gap_of_others_seconds": (
            round(float(np.diff(others, prepend=killed).max()), 3) if others.size else None
        ),
    }
