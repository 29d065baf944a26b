"""When which fault comes: each kind once in any order, then at random until the time is up."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from services.verify.crawlers import Crawlers
from services.verify.faults import SOFT, Injected, Injector
from services.verify.plan import Fault, VerifyPlan
from services.verify.sending import Sender
from services.verify.system import System

PATIENCE_SECONDS: Final = 60.0
"""A system that is not at its budget by then will not get there."""

STEADY_SECONDS: Final = 2.0
"""At the budget for so long, the system has recovered."""

AT_BUDGET: Final = 0.9
GAP_SECONDS: Final = (0.2, 2.0)
SOFT_GAP_SECONDS: Final = (1.0, 5.0)
DOUBLE_SHARE: Final = 0.2
"""Faults that get company by another before the system has recovered; in the first round none."""

BUDGET_EVERY: Final = 3
"""The budget changes after each so many faults."""

WAYS: Final = 4
RAMP: Final = 2
SCHEDULE: Final = 3
NOTHING: Final = 0
"""Of every four changes of the budget the second is a ramp, the third a schedule by the time of the
day; the fourth goes to nothing first."""

RAMP_SECONDS: Final = 6.0
SCHEDULED: Final = 3
SCHEDULED_SECONDS: Final = 2
"""A schedule has so many rates, each for so long."""

NOTHING_SECONDS: Final = 3.0

_LOOK_SECONDS: Final = 0.2


class Campaign:
    """Faults of the system one after the other; beside them, faults of what comes from outside."""

    def __init__(
        self,
        system: System,
        injector: Injector,
        crawlers: Crawlers,
        sender: Sender,
        plan: VerifyPlan,
    ) -> None:
        self._system = system
        self._injector = injector
        self._crawlers = crawlers
        self._sender = sender
        self._plan = plan
        self._rates = plan.rates
        self._hard = [fault for fault in plan.faults if fault not in SOFT]
        self._soft = [fault for fault in plan.faults if fault in SOFT]
        self._rng = np.random.default_rng([plan.seed, 23])
        self._under_way: asyncio.Future[None] | None = None
        """A change of the budget that takes a while."""

    async def run(self, seconds: float) -> None:
        """Inject faults for so long, or until each kind has come once."""
        until = time.monotonic() + seconds
        ways = []
        if self._hard or self._plan.before:
            ways.append(self._run_hard(until))
        if self._soft:
            ways.append(self._run_soft(until))
        if not ways:
            ways.append(asyncio.sleep(seconds))
        await asyncio.gather(*ways)
        await self._budget_is_there()

    async def _run_hard(self, until: float) -> None:
        upgrades: list[Fault] = ["upgrade"] * len(self._system.ports)
        waiting = self._shuffled([*self._hard, *(upgrades if self._plan.before else ())])
        count = 0
        while waiting or time.monotonic() < until:
            first_round = bool(waiting)
            if not waiting and not self._hard:
                await asyncio.sleep(until - time.monotonic())
                return
            kind = waiting.pop() if waiting else self._any(self._hard)
            await asyncio.sleep(self._rng.uniform(*GAP_SECONDS))
            done = [await self._injector.inject(kind)]
            if not first_round and self._rng.random() < DOUBLE_SHARE:
                done.append(await self._injector.inject(self._any(self._hard)))
            await self._recovered(done)
            count += 1
            if count % BUDGET_EVERY == 0:
                await self._change_budget(count // BUDGET_EVERY)

    async def _change_budget(self, number: int) -> None:
        """At once, in a ramp, by a schedule, or to nothing and back, in turn; no fault waits for
        the end of a ramp or a schedule."""
        await self._budget_is_there()
        rate, *later = (
            round(float(rate), 1) for rate in self._rng.uniform(*self._rates, SCHEDULED)
        )
        way = number % WAYS
        if way in (RAMP, SCHEDULE):
            change = (
                self._sender.ramp_budget(rate, RAMP_SECONDS)
                if way == RAMP
                else self._sender.schedule_budget([rate, *later], SCHEDULED_SECONDS)
            )
            self._under_way = asyncio.ensure_future(change)
            await asyncio.sleep(RAMP_SECONDS / 2)
            return
        if way == NOTHING:
            await self._sender.set_budget(0.0)
            await asyncio.sleep(NOTHING_SECONDS)
        await self._sender.set_budget(rate)
        await asyncio.sleep(STEADY_SECONDS)

    async def _budget_is_there(self) -> None:
        if self._under_way is not None:
            await self._under_way

    async def _run_soft(self, until: float) -> None:
        waiting = self._shuffled(self._soft)
        while waiting or time.monotonic() < until:
            kind = waiting.pop() if waiting else self._any(self._soft)
            await asyncio.sleep(self._rng.uniform(*SOFT_GAP_SECONDS))
            done = await self._injector.inject(kind)
            done.settled = done.ended

    async def _recovered(self, done: Sequence[Injected]) -> None:
        """Wait until all workers are ready and the crawls have been at the budget for a while."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            if await self._is_well():
                for fault in done:
                    fault.settled = time.time()
                return
            await asyncio.sleep(_LOOK_SECONDS)

    async def _is_well(self) -> bool:
        budget = self._sender.budget_changes[-1][1]
        if self._crawlers.rate(STEADY_SECONDS) < AT_BUDGET * budget:
            return False
        reasons = [await self._system.why_not_ready(name) for name in list(self._system.ports)]
        return not any(reasons)

    def _any(self, faults: Sequence[Fault]) -> Fault:
        return faults[int(self._rng.integers(len(faults)))]

    def _shuffled(self, faults: Sequence[Fault]) -> list[Fault]:
        return [faults[index] for index in self._rng.permutation(len(faults))]
