"""When which fault comes: each kind once in any order, then at random until the time is up."""

import asyncio
import time
from collections.abc import Sequence
from typing import Final

import numpy as np

from services.verify.crawlers import Crawlers
from services.verify.faults import SOFT, Injected, Injector
from services.verify.plan import HIGHEST_RATE, LOWEST_RATE, Fault
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

_LOOK_SECONDS: Final = 0.2


class Campaign:
    """Faults of the system one after the other; beside them, faults of what comes from outside."""

    def __init__(
        self,
        system: System,
        injector: Injector,
        crawlers: Crawlers,
        sender: Sender,
        faults: Sequence[Fault],
        seed: int,
    ) -> None:
        self._system = system
        self._injector = injector
        self._crawlers = crawlers
        self._sender = sender
        self._hard = [fault for fault in faults if fault not in SOFT]
        self._soft = [fault for fault in faults if fault in SOFT]
        self._rng = np.random.default_rng([seed, 23])

    async def run(self, seconds: float) -> None:
        """Inject faults for so long, or until each kind has come once."""
        until = time.monotonic() + seconds
        ways = []
        if self._hard:
            ways.append(self._run_hard(until))
        if self._soft:
            ways.append(self._run_soft(until))
        if not ways:
            ways.append(asyncio.sleep(seconds))
        await asyncio.gather(*ways)

    async def _run_hard(self, until: float) -> None:
        waiting = self._shuffled(self._hard)
        count = 0
        while waiting or time.monotonic() < until:
            first_round = bool(waiting)
            kind = waiting.pop() if waiting else self._any(self._hard)
            await asyncio.sleep(self._rng.uniform(*GAP_SECONDS))
            done = [await self._injector.inject(kind)]
            if not first_round and self._rng.random() < DOUBLE_SHARE:
                done.append(await self._injector.inject(self._any(self._hard)))
            await self._recovered(done)
            count += 1
            if count % BUDGET_EVERY == 0:
                rate = float(self._rng.uniform(LOWEST_RATE, HIGHEST_RATE))
                await self._sender.set_budget(round(rate, 1))
                await asyncio.sleep(STEADY_SECONDS)

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
