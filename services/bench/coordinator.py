"""The budget under steps, a host limit that is lifted, and processes that are killed.

The real system, on this machine: local broker, PostgreSQL, a simulated world, an estimator, an
ingester, two coordinators, and a scheduler process for each of four shards. What counts is
`requested_at` of the requests on the topic.
"""

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import aiohttp
import click
import numpy as np
from aiokafka import ConsumerRecord, TopicPartition
from msgspec.structs import replace

from deploy.local.process import free_port
from deploy.local.supervisor import ChildSpec
from services.bench.coordinator_figures import Crawls, most_over, rate_check, seconds_until_full
from services.bench.coordinator_solver import measure_solver
from services.run.options import CLOCK_ORIGIN, RunOptions
from services.run.preparing import make_plan, prepare_system, publish_budget
from services.run.readiness import wait_until_ready
from services.run.stack import LOOPBACK, Stack
from services.world.importing import import_world
from services.world.plan import BudgetStep, write_plan
from shared.contracts.codec import decode
from shared.contracts.messages import CrawlRequest, HostLimit, Multipliers
from shared.contracts.topics import CRAWL_REQUESTS, HOST_LIMITS, MULTIPLIERS, Topic
from shared.pacing.slots import SlotPlan, SlotTimeline, is_late
from shared.runtime.clock import open_gate
from shared.runtime.kafka import appended_at, make_consumer, partitions_of
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.terminal.numbers import Number
from shared.terminal.output import show, show_json
from shared.units import SECONDS_PER_DAY

SHARDS = 4
DAYS_PER_SECOND = 0.1
TOLERANCE = 0.01
SETTLE_SECONDS = 2.0
"""After a step the rate must be the new one within this time."""

LOOK_SECONDS = 4.0
"""... and is looked at for so long."""

WARM_UP_SECONDS = 5.0
WARM_UP_PATIENCE_SECONDS = 90.0
"""The first crawls of a machine may wait for the compiler."""

REDISTRIBUTE_SECONDS = 5.0
"""A killed shard's budget must be with the others within this time."""

SETTLED_SECONDS = 6.5
"""The others are looked at until so long after the kill. Some seconds later the broker misses the
dead scheduler, and the group stands still for a moment while it hands the shard to another."""

HAND_OVER_SECONDS = 18.0

STEPS = (("up", 1.5), ("back", 1.0), ("down", 0.2), ("restored", 1.0))
"""Of the budget, by what it is multiplied then."""

BIGGEST_HOST = "site-0.example"
LIMITED_SHARE = 0.02
"""Of the budget, to which the biggest host is limited at first; it has an eighth of the pages."""

_STANDBY = "coordinator-2"


@click.command("coordinator")
@click.option("--pages", type=click.IntRange(min=1000), default=60_000, show_default=True)
@click.option(
    "--rate",
    type=Number(min=100),
    default=500.0,
    show_default=True,
    help="Crawls per second of the wall, before the steps.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(pages: int, rate: float, as_json: bool) -> None:
    """Obey the budget to the crawl: steps, a lifted host limit, killed processes. Two minutes.

    Four shards, a process each, two coordinators. The rate is stepped up by a half and back, then
    down to a fifth; a limit of the biggest host is lifted; the leading coordinator and a shard's
    scheduler are killed.

    \b
    Examples:
      freshet bench coordinator --json
      freshet bench coordinator --rate 1000 --pages 100000
    """
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder:
        answer = asyncio.run(_Scenario(Path(folder), pages, rate).run())
    answer |= {"solver": measure_solver(64)}
    if as_json:
        show_json(answer)
    else:
        show(answer, as_json=False)


def counting(records: Iterable[ConsumerRecord]) -> list[Multipliers]:
    """The messages on `multipliers` that schedulers go by."""
    messages = ((decode(Multipliers, record.value), appended_at(record)) for record in records)
    return [message for message, at in messages if not is_late(message, at)]


class _Scenario:
    def __init__(self, folder: Path, pages: int, rate: float) -> None:
        self._rate = rate
        speed = DAYS_PER_SECOND * SECONDS_PER_DAY
        options = RunOptions(
            world="generated",
            data_dir=folder,
            partitions=SHARDS,
            schedulers=SHARDS,
            pages=pages,
            speed=DAYS_PER_SECOND,
            budget=(BudgetStep(0.0, rate / speed),),
        )
        self._speed = speed
        self._stack = Stack(options)
        self._began = 0.0
        self._marks: dict[str, float] = {}
        self._lags: dict[str, float] = {}
        self._killed_shard = -1
        self._states: dict[str, Any] = {}

    @property
    def _settings(self) -> Settings:
        return self._stack.settings

    async def run(self) -> dict[str, Any]:
        with self._stack.locked():
            try:
                await self._start()
                await self._live()
                crawls = await self._crawls()
                plans = counting(await self._read(MULTIPLIERS))
            finally:
                await self._stack.stop()
        return self._answer(crawls, plans)

    async def _start(self) -> None:
        stack, options = self._stack, self._stack.options
        await stack.start_servers()
        await prepare_system(stack.settings, own_database=stack.own_database, must_be_empty=False)
        plan = make_plan(options, stack.status_file, stack.result_file)
        write_plan(plan, stack.plan_file)
        await import_world(stack.settings, plan, lambda _done, _of: None)
        await publish_budget(stack.settings, self._rate / self._speed)
        await self._limit_biggest(LIMITED_SHARE * self._rate)
        specs = stack.workers()
        specs += [self._standby(specs), stack.world()]
        await stack.supervisor.start(specs)
        await wait_until_ready(stack)
        if stack.gate is not None:
            open_gate(stack.gate)
            self._began = float(stack.gate.read_text())

    def _standby(self, specs: list[ChildSpec]) -> ChildSpec:
        """A second coordinator, like the first."""
        [first] = [spec for spec in specs if spec.name == "coordinator"]
        port = self._stack.ports[_STANDBY] = free_port()
        more = {"FRESHET_INSTANCE": _STANDBY, "FRESHET_HTTP_PORT": str(port)}
        return replace(first, name=_STANDBY, env={**first.env, **more})

    async def _limit_biggest(self, per_wall_second: float) -> None:
        publisher = Publisher(self._settings)
        await publisher.start()
        try:
            limit = HostLimit(BIGGEST_HOST, max_crawls_per_second=per_wall_second / self._speed)
            await (await publisher.send_for_host(HOST_LIMITS, BIGGEST_HOST, limit))
        finally:
            await publisher.stop()

    async def _live(self) -> None:
        """Everything that happens, one after the other; `_marks` says when."""
        await self._warm_up()
        self._mark("steady")
        await asyncio.sleep(LOOK_SECONDS)
        for name, factor in STEPS:
            await publish_budget(self._settings, factor * self._rate / self._speed)
            self._mark(name)
            await asyncio.sleep(SETTLE_SECONDS + LOOK_SECONDS)
        await self._limit_biggest(1e3 * self._rate)
        self._mark("limit lifted")
        await asyncio.sleep(SETTLE_SECONDS + LOOK_SECONDS)
        await self._note_states()
        leader = _STANDBY if self._states[_STANDBY]["leads"] else "coordinator"
        await self._kill(leader)
        self._mark("leader killed")
        await asyncio.sleep(SETTLE_SECONDS + LOOK_SECONDS)
        self._mark("leader was away")
        victim, self._killed_shard = await self._scheduler_of_a_shard()
        await self._kill(victim)
        self._mark("shard killed")
        await asyncio.sleep(HAND_OVER_SECONDS)
        self._mark("end")

    async def _warm_up(self) -> None:
        """Wait until the schedulers say, for some seconds, that they crawl as they should."""
        good, needed = 0, int(WARM_UP_SECONDS)
        while good < needed and time.time() - self._began < WARM_UP_PATIENCE_SECONDS:
            await asyncio.sleep(1.0)
            state = await self._state("coordinator")
            good = good + 1 if state["now"]["achieved_ratio"] > 0.95 else 0

    async def _state(self, name: str) -> Any:
        url = f"http://{LOOPBACK}:{self._stack.ports[name]}/state.json"
        async with aiohttp.ClientSession() as client, client.get(url) as answer:
            return await answer.json()

    def _mark(self, name: str) -> None:
        self._marks[name] = time.time() - self._began

    async def _kill(self, name: str) -> None:
        for child in self._stack.supervisor.children():
            if child.name == name and child.pid is not None:
                os.kill(child.pid, signal.SIGKILL)
        await self._stack.supervisor.end(name, grace_seconds=0.0)

    async def _note_states(self) -> None:
        """What the coordinators show, and how long their loops were blocked at most."""
        for name in ("coordinator", _STANDBY):
            self._states[name] = await self._state(name)
            url = f"http://{LOOPBACK}:{self._stack.ports[name]}/metrics"
            async with aiohttp.ClientSession() as client, client.get(url) as answer:
                self._lags[name] = _share_of_lags_within(await answer.text(), 0.02)

    async def _scheduler_of_a_shard(self) -> tuple[str, int]:
        async with aiohttp.ClientSession() as client:
            for name, port in self._stack.ports.items():
                if not name.startswith("scheduler"):
                    continue
                async with client.get(f"http://{LOOPBACK}:{port}/shards") as answer:
                    shards = (await answer.json())["shards"]
                if len(shards) == 1:
                    return name, int(shards[0]["shard"])
        raise click.ClickException("no scheduler has exactly one shard: try again")

    async def _read(self, topic: Topic) -> list[Any]:
        consumer = make_consumer(self._settings)
        await consumer.start()
        try:
            name = self._settings.topic(topic.name)
            parts = [TopicPartition(name, p) for p in range(partitions_of(topic, self._settings))]
            consumer.assign(parts)
            ends = await consumer.end_offsets(parts)
            await consumer.seek_to_beginning(*parts)
            records: list[Any] = []
            for part in parts:
                while await consumer.position(part) < ends[part]:
                    fetched = await consumer.getmany(timeout_ms=500)
                    records += [r for of_part in fetched.values() for r in of_part]
            return records
        finally:
            await consumer.stop()

    async def _crawls(self) -> Crawls:
        records = await self._read(CRAWL_REQUESTS)
        clock = np.array([decode(CrawlRequest, r.value).requested_at for r in records])
        times = (clock - CLOCK_ORIGIN) / self._speed
        order = np.argsort(times, kind="stable")
        return Crawls(times[order], np.array([r.partition for r in records])[order])

    def _answer(self, crawls: Crawls, plans: list[Multipliers]) -> dict[str, Any]:
        marks = self._marks
        checks = {"steady": self._check(crawls, 1.0, marks["steady"])}
        for name, factor in (*STEPS, ("limit lifted", 1.0)):
            checks[name] = self._check(crawls, factor, marks[name] + SETTLE_SECONDS)
        checks["leader killed"] = self._check(
            crawls, 1.0, marks["leader killed"], marks["leader was away"]
        )
        checks["leader killed"]["leaderless_seconds"] = self._leaderless(plans)
        checks["shard killed"] = self._shard_killed(crawls)
        any_second = self._any_second(crawls, plans)
        return {
            "shards": SHARDS,
            "pages": self._stack.options.pages,
            "crawls_per_second": self._rate,
            "crawls": crawls.within(0.0, marks["end"]),
            "warm_up_seconds": round(marks["steady"], 1),
            "tolerance": TOLERANCE,
            "checks": checks,
            "any_second": any_second,
            "share_of_loop_lags_within_20_ms": {n: round(s, 4) for n, s in self._lags.items()},
            "passed": all(part["passed"] for part in [*checks.values(), any_second]),
        }

    def _any_second(self, crawls: Crawls, plans: list[Multipliers]) -> dict[str, Any]:
        """The fullest second from the first to the last moment, compared with its budget."""
        timeline = SlotTimeline()
        for plan in plans:
            timeline.add(SlotPlan.from_message(plan))
        over = most_over(crawls, timeline, CLOCK_ORIGIN, self._speed)
        return {
            "most_crawls_over_budget": round(over, 3),
            "allowed": SHARDS,
            "passed": over <= SHARDS,
        }

    def _check(
        self, crawls: Crawls, factor: float, start: float, end: float | None = None
    ) -> dict[str, Any]:
        until = start + LOOK_SECONDS if end is None else end
        return rate_check(crawls, factor * self._rate, start, until, TOLERANCE)

    def _leaderless(self, plans: list[Multipliers]) -> float | None:
        """Wall seconds from the leader's death to the first decision of the other."""
        killed = CLOCK_ORIGIN + self._speed * self._marks["leader killed"]
        later = [p.computed_at for p in plans if p.epoch > plans[0].epoch]
        return round((min(later) - killed) / self._speed, 3) if later else None

    def _shard_killed(self, crawls: Crawls) -> dict[str, Any]:
        killed = self._marks["shard killed"]
        end = killed + SETTLED_SECONDS
        slack = TOLERANCE * self._rate + SHARDS
        others = crawls.without(self._killed_shard)
        seconds = seconds_until_full(others, self._rate, killed, end, slack)
        return {
            "shard": self._killed_shard,
            "seconds_until_its_budget_is_with_the_others": seconds,
            "allowed": REDISTRIBUTE_SECONDS,
            "others_by_second": _by_second(others, killed, HAND_OVER_SECONDS),
            "all_by_second": _by_second(crawls, killed, HAND_OVER_SECONDS),
            "passed": seconds is not None and seconds <= REDISTRIBUTE_SECONDS,
        }


def _by_second(crawls: Crawls, start: float, seconds: float) -> list[int]:
    return [crawls.within(start + n, start + n + 1) for n in range(int(seconds))]


def _share_of_lags_within(exposition: str, seconds: float) -> float:
    """Share of the probes of the event loop that were late by no more than so many seconds."""
    within, of = 0.0, 0.0
    for line in exposition.splitlines():
        name, _, value = line.rpartition(" ")
        if name.startswith("freshet_loop_lag_seconds_bucket"):
            with contextlib.suppress(ValueError):
                if float(name.partition('le="')[2].partition('"')[0]) <= seconds:
                    within = max(within, float(value))
        elif name.startswith("freshet_loop_lag_seconds_count"):
            of = float(value)
    return within / of if of else 1.0
