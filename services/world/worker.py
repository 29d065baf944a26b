"""The world's process: web, pingers, crawler fleet and books, one loop each on one clock."""

import argparse
import asyncio
import json
import math
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog

from services.world import report
from services.world.applied import AppliedOutcomes
from services.world.books import BookKeeper
from services.world.budget import Budget
from services.world.events import EventStream
from services.world.fleet import Fleet
from services.world.ledger import Ledger
from services.world.pages import WorldPages
from services.world.pinger import TURN_SECONDS, Pinger
from services.world.plan import WorldPlan, read_plan
from services.world.population import GeneratedStream, generate_population
from services.world.status_page import StatusPage
from services.world.trace import TraceError, read_events, read_pages
from services.world.web import Web
from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH
from shared.runtime.ending import STOP_SIGNALS, ignore_further_stops
from shared.runtime.logs import configure_logs
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, SettingsError, load_settings
from shared.units import SECONDS_PER_DAY

log = structlog.get_logger(__name__)

STATUS_SECONDS = 1.0
DRAIN_SECONDS = 10.0
"""The last requests get so long to come, be answered and be applied."""

QUIET_SECONDS = 1.0
"""Without a request for so long after the budget is gone, there will be none."""


def load_world(plan: WorldPlan) -> tuple[WorldPages, EventStream]:
    """The pages and events of a plan.

    Raises:
        TraceError: the trace cannot be read.
    """
    if plan.kind == "generated":
        population = generate_population(plan.pages, plan.seed)
        return population.pages, GeneratedStream(population, plan.seed)
    if plan.pages_file is None or plan.events_file is None:
        raise TraceError("a trace needs a file of pages and a file of events")
    pages = read_pages(Path(plan.pages_file))
    return pages, read_events(Path(plan.events_file), pages)


class World:
    """One run of a simulated web."""

    def __init__(self, settings: Settings, plan: WorldPlan) -> None:
        self.settings = settings
        self.plan = plan
        self.clock = settings.clock()
        # On the real time there is no gate, and the world begins when it is started.
        simulated = settings.clock_gate is not None
        self.origin = settings.clock_origin if simulated else self.clock.now()
        self.stopping = asyncio.Event()
        self.state = "waiting"
        self._ended = asyncio.Event()
        """All loops stop: the run is over and drained."""
        pages, stream = load_world(plan)
        end = math.inf if plan.days is None else plan.days
        self.web = Web(pages.importance, pages.held, stream, end)
        self.ledger = self._new_ledger(time.time())
        publisher = Publisher(settings)
        self._publisher = publisher
        self._pinger = Pinger(publisher, pages, stream, self.origin)
        self._fleet = Fleet(
            publisher,
            self.clock,
            self.web,
            pages,
            plan.fleet,
            origin=self.origin,
            seed=plan.seed,
        )
        self._applied = AppliedOutcomes(settings)
        self._books = BookKeeper(settings, self._applied.written, self._fleet.take)
        self._page = StatusPage(settings, self.status, lambda: self._books.ready)
        self._result: dict[str, Any] = {}
        self._steps = sorted(plan.budget, key=lambda step: step.day)[1:]

    async def run(self) -> dict[str, Any]:
        """Live through the plan, or until `stopping` is set; returns the result."""
        await self._publisher.start()
        await self._books.start()
        await self._page.start()
        loops = [
            asyncio.ensure_future(self._repeat(turn))
            for turn in (self._fleet.turn, self._book_turn, self._applied_turn, self._status_turn)
        ]
        main = asyncio.ensure_future(self._live())
        try:
            done, _ = await asyncio.wait([main, *loops], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            await asyncio.gather(*loops)
        finally:
            self._ended.set()
            for task in (main, *loops):
                task.cancel()
            await asyncio.gather(main, *loops, return_exceptions=True)
            await self._close()
        return self._result

    def status(self) -> dict[str, Any]:
        """How the run stands, for the status file and page."""
        return report.status(
            self.ledger,
            self.web,
            state=self.state,
            seconds=self._seconds(),
            speed=self.clock.speed,
        )

    async def _live(self) -> None:
        """Wait for the gate; send signals and budget steps in time; drain at the end."""
        while self._day() <= 0 and not self.stopping.is_set():  # noqa: ASYNC110 - a file starts it
            await asyncio.sleep(TURN_SECONDS)
        self.ledger = self._new_ledger(time.time() - self._seconds())
        self.state = "running"
        log.info("the world runs")
        while (day := self._day()) < self.web.end and not self.stopping.is_set():
            await self._pinger.publish(day)
            await self._change_budget(day)
            await asyncio.sleep(TURN_SECONDS)
        if not self.stopping.is_set():
            await self._pinger.publish(self.web.end)
        self.web.end = min(self._day(), self.web.end)
        self.web.advance(self.web.end)
        seconds = self.web.end * SECONDS_PER_DAY / self.clock.speed
        await self._drain()
        self._result = report.result(self.ledger, self.web, seconds=seconds, speed=self.clock.speed)
        self.state = "finished"
        self._ended.set()

    async def _change_budget(self, day: float) -> None:
        while self._steps and self._steps[0].day <= day:
            step = self._steps.pop(0)
            await self._publisher.send_global(
                BANDWIDTH, Bandwidth(step.crawls_per_second, set_at=self.clock.now())
            )
            log.info("bandwidth changed", crawls_per_second=step.crawls_per_second)

    async def _drain(self) -> None:
        """Take the budget away, and let what was asked for be answered and applied."""
        self.state = "draining"
        self.ledger.closed = True
        await self._publisher.send_global(BANDWIDTH, Bandwidth(0.0, set_at=self.clock.now()))
        deadline = time.monotonic() + DRAIN_SECONDS
        quiet_since, seen = time.monotonic(), -1
        while time.monotonic() < deadline and not self.stopping.is_set():
            if self.ledger.requests != seen or self.ledger.in_flight or self._applied.waiting:
                quiet_since, seen = time.monotonic(), self.ledger.requests
            if time.monotonic() - quiet_since > QUIET_SECONDS:
                return
            await asyncio.sleep(TURN_SECONDS)
        if self.stopping.is_set():
            return
        log.warning(
            "the run did not drain",
            unanswered=self.ledger.in_flight,
            unapplied=self._applied.waiting,
            waited_seconds=DRAIN_SECONDS,
        )

    async def _repeat(self, turn: Callable[[], Awaitable[None]]) -> None:
        while not self._ended.is_set():
            await turn()

    async def _book_turn(self) -> None:
        if self.state == "waiting":
            await asyncio.sleep(TURN_SECONDS)
            return
        await self._books.turn(self.ledger)

    async def _applied_turn(self) -> None:
        await self._applied.turn(self.ledger)

    async def _status_turn(self) -> None:
        if self.state == "running":
            self.web.advance(self._day())
        _replace(Path(self.plan.status_file), self.status())
        await asyncio.sleep(STATUS_SECONDS)

    async def _close(self) -> None:
        await self._page.stop()
        await self._books.stop()
        self._applied.close()
        await self._publisher.stop()

    def _new_ledger(self, started_at: float) -> Ledger:
        return Ledger(
            origin=self.origin,
            speed=self.clock.speed,
            started_at=started_at,
            budget=Budget.from_steps(self.plan.budget, self.clock.speed),
        )

    def _day(self) -> float:
        return (self.clock.now() - self.origin) / SECONDS_PER_DAY

    def _seconds(self) -> float:
        return (self.clock.now() - self.origin) / self.clock.speed


def _replace(file: Path, content: dict[str, Any]) -> None:
    """Write a file so that a reader sees the old or the new, never a half."""
    waiting = file.with_suffix(".new")
    waiting.write_text(json.dumps(content, allow_nan=False))
    waiting.replace(file)


async def run_world(settings: Settings, plan: WorldPlan) -> None:
    """Run a world to its end or to SIGTERM, and write its result file."""
    world = World(settings, plan)
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, world.stopping.set)
    result = await world.run()
    # Whoever waits for the result tells everybody to stop once it is there.
    ignore_further_stops(loop)
    _replace(Path(plan.result_file), result)


def main(arguments: list[str] | None = None) -> None:
    """Run the world of a plan file."""
    parser = argparse.ArgumentParser(prog="python -m services.world", description=__doc__)
    parser.add_argument("plan", type=Path, help="file made by `freshet run` (see WorldPlan)")
    chosen = parser.parse_args(arguments)
    try:
        settings = load_settings()
        configure_logs(
            settings.log_format, settings.log_level, worker="world", instance=settings.instance
        )
        asyncio.run(run_world(settings, read_plan(chosen.plan)))
    except (SettingsError, TraceError, ValueError, OSError) as error:
        sys.exit(f"the world cannot run: {error}")
