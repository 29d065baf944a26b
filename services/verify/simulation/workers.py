"""The life of a worker's process: it starts, runs its own loops, ends, and is started again."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Any, Final

from services.coordinator.worker import Coordinator
from services.estimator.worker import Estimator
from services.ingester.worker import Ingester
from services.scheduler.worker import Scheduler
from services.verify.simulation.kafka.network import Network
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.plan import Scale, SimulationPlan
from services.verify.simulation.process import OUTSIDE, Process
from services.verify.simulation.store.database import Database
from shared.runtime.page_class_terms import ClassTerms
from shared.runtime.settings import Settings
from shared.runtime.worker import STOP_LIMIT_SECONDS, STOP_SECONDS, WorkerService
from shared.units import SECONDS_PER_DAY

_KINDS: Final[dict[str, Callable[[Settings], WorkerService]]] = {
    "ingester": Ingester,
    "estimator": Estimator,
    "scheduler": Scheduler,
    "coordinator": Coordinator,
}

STALL_SECONDS: Final = 20.0

MAX_AGE_SECONDS: Final = 8.0

LEAST_INTERVAL_SECONDS: Final = 1.5
"""Where there is more budget than pages can use, it binds; no failure waits for longer by it."""

LOOK_SECONDS: Final = 1.0
"""Between two looks of the watchdog."""

AGAIN_SECONDS: Final = 1.0
"""Whoever supervises a worker starts it again so soon."""


@lru_cache(maxsize=64)
def settings_of(name: str, scale: Scale, resident_pages: int) -> Settings:
    """A worker's settings."""
    return Settings(
        instance=name,
        partitions=scale.partitions,
        kafka_session_timeout_seconds=scale.session_seconds,
        stall_seconds=STALL_SECONDS,
        tick_seconds=0.4,
        batch_linger_seconds=0.3,
        request_timeout_seconds=5.0,
        failed_retry_seconds=2.0,
        least_interval_seconds=LEAST_INTERVAL_SECONDS,
        report_seconds=1.0,
        silent_after_seconds=4.0,
        signal_debounce_seconds=0.5,
        allow_private_hosts=True,
        default_max_age_days=MAX_AGE_SECONDS / SECONDS_PER_DAY,
        default_host_crawls_per_second=1.0,
        bad_messages_least=1_000_000,
        signals_per_source_per_second=1000.0,
        group_crawls_per_second=scale.group_crawls_per_second,
        reason_shares=dict(scale.reason_shares),
        classes={n: ClassTerms(weight=weight, share=share) for n, weight, share in scale.classes},
        estimator_resident_pages=resident_pages,
        objectives=json.loads(scale.objectives),
    )


@dataclass(slots=True)
class Life:
    """One life of a worker."""

    process: Process
    service: WorkerService | None = None
    tasks: list["asyncio.Future[Any]"] = field(default_factory=list)
    is_ending: bool = False


class Workers:
    """All of them."""

    def __init__(
        self,
        loop: VirtualLoop,
        plan: SimulationPlan,
        network: Network,
        database: Database,
        rng: Random,
    ) -> None:
        self.lives: dict[str, Life] = {}
        """The present life of each."""
        self.offsets: dict[str, float] = {}
        """By how much each clock is ahead."""
        self.said: Callable[[str, str], None] = lambda _who, _what: None
        """Told what becomes of workers."""
        self._loop, self._scale = loop, plan.scale
        self._resident_pages = plan.weather.resident_pages
        self._network, self._database = network, database
        self._rng = rng
        self._ended: list[Life] = []
        self._numbers = 0
        self._is_over = False

    def start(self, name: str) -> None:
        """Begin a life."""
        if self._is_over:
            return
        process = Process(name, self.offsets.get(name, 0.0))
        self._numbers += 1
        process.number = self._numbers
        life = self.lives[name] = Life(process)
        self.said(name, "starts")
        self._spawn(life, self._live(life))
        self._spawn(life, self._watch(life))

    def _spawn(self, life: Life, coroutine: Any) -> "asyncio.Task[Any]":
        task = self._loop.create_task(coroutine, context=life.process.context())
        life.tasks.append(task)
        return task

    async def _live(self, life: Life) -> None:
        service = _KINDS[life.process.name.split("-")[0]](
            settings_of(life.process.name, self._scale, self._resident_pages)
        )
        life.service = service
        try:
            clock = service.clock_offset  # What its base class would start
            await clock.start()
            await service.open()
            running = (*service.loops(), clock.run(service.stopping))
            loops = [asyncio.ensure_future(loop) for loop in running]
            life.tasks += loops
            service._loops = list(loops)  # noqa: SLF001 - the watchdog counts from here on
            done, _ = await asyncio.wait(loops, return_when=asyncio.FIRST_COMPLETED)
            if service.stopping.is_set():
                await asyncio.wait(loops, timeout=STOP_SECONDS)
                await service.close()
                self._end(life, "has stopped")
                return
            failures = [repr(t.exception()) for t in done if t.exception() is not None]
            self._end(life, f"ends: {'; '.join(failures) or 'a loop returned'}"[:300])
        except Exception as error:
            self._end(life, f"ends: {error!r}"[:300])

    async def _watch(self, life: Life) -> None:
        """The watchdog; and what the worker's broker watch would note."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            service = life.service
            if service is None:
                continue
            if not self._network.reaches(life.process):
                service.broker.away_at = time.monotonic()
            if service.silent_seconds() > STALL_SECONDS:
                self._end(life, "shows no sign of life and ends itself")

    def _end(self, life: Life, what: str) -> None:
        """A process is gone; another is started in its place."""
        if life.process.is_dead:
            return
        name = life.process.name
        self.said(name, what)
        self._bury(life)
        if self.lives.get(name) is life:
            self._later(AGAIN_SECONDS, lambda: self._start_again(name, life))

    def _start_again(self, name: str, life: Life) -> None:
        if self.lives.get(name) is life:
            self.start(name)

    def _bury(self, life: Life) -> None:
        self._loop.kill(life.process)
        self._database.forget(life.process)
        self._ended.append(life)

    def kill(self, name: str, seconds: float) -> None:
        """End a process without another step, and start it again some seconds later."""
        life = self.lives[name]
        if not life.process.is_dead:
            self.said(name, "is killed")
            self._bury(life)
        self._later(seconds, lambda: self._start_again(name, life))

    def died(self, process: Process) -> None:
        """A process ended itself, or was killed at a special place."""
        life = self.lives.get(process.name)
        if life is not None and life.process is process:
            self._end(life, "is killed on the spot")

    def terminate(self, name: str) -> None:
        """Ask a process to stop; it has as long as a supervisor gives it."""
        life = self.lives[name]
        if life.process.is_dead or life.service is None:
            return
        self.said(name, "is told to stop")
        life.service.stopping.set()
        self._later(
            STOP_LIMIT_SECONDS, lambda: self._end(life, "takes too long to stop and is cut off")
        )

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=OUTSIDE.context())

    def service(self, name: str) -> Any:
        """The present service of a worker; None: it is not running."""
        life = self.lives.get(name)
        return None if life is None or life.process.is_dead else life.service

    def close(self) -> None:
        """End everything; nothing that ends has an effect any more."""
        self._is_over = True
        for life in self.lives.values():
            if not life.process.is_dead:
                self._bury(life)
