"""From a plan that breaks a promise to a short one that still does."""

import math
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from services.verify.simulation.plan import SimulationPlan
from services.verify.simulation.run import Mutate, Result, simulate

MOST_RUNS: Final = 60

SHORTEST_SECONDS: Final = 0.3


class Shrinker:
    """Looks for a smaller plan by leaving out and shortening, one thing at a time."""

    def __init__(
        self,
        found: Result,
        mutate: Mutate,
        run: Callable[[SimulationPlan, Mutate], Result] = simulate,
    ) -> None:
        """Begin with what was found.

        Args:
            found: a result that did not pass.
            mutate: what was planted when it was found.
            run: runs a plan.
        """
        self.best = found
        self.runs = 0
        self._wanted = found.broken[0]
        self._mutate = mutate
        self._run = run

    def _try(self, plan: SimulationPlan) -> bool:
        """Whether a plan breaks the same promise; if so, it is the best so far."""
        if self.runs >= MOST_RUNS:
            return False
        self.runs += 1
        result = self._run(plan, self._mutate)
        if self._wanted not in result.broken:
            return False
        self.best = result
        return True

    def shrink(self) -> Result:
        """The smallest plan that was found."""
        self._leave_out_faults()
        self._shorten_faults()
        self._shorten_run()
        return self.best

    def _leave_out_faults(self) -> None:
        """Delta debugging: ever smaller groups, until no fault can be left out by itself."""
        size = math.ceil(len(self.best.plan.faults) / 2)
        while size >= 1:
            left_out, count = False, len(self.best.plan.faults)
            for begin in range(0, count, size):
                if count - len(self.best.plan.faults):
                    break  # numbers have moved: begin anew
                group: Collection[int] = range(begin, min(begin + size, count))
                left_out = self._try(self.best.plan.without(set(group))) or left_out
            if not left_out:
                size = size // 2
            else:
                size = min(size, max(len(self.best.plan.faults), 1))
                if not self.best.plan.faults:
                    return

    def _shorten_faults(self) -> None:
        for index in range(len(self.best.plan.faults)):
            fault = self.best.plan.faults[index]
            while fault.seconds > SHORTEST_SECONDS:
                fault = replace(fault, seconds=round(fault.seconds / 2, 2))
                faults = list(self.best.plan.faults)
                faults[index] = fault
                if not self._try(replace(self.best.plan, faults=tuple(faults))):
                    break

    def _shorten_run(self) -> None:
        plan = self.best.plan
        last = max((fault.at + fault.seconds for fault in plan.faults), default=0.0)
        seconds = math.ceil(last + plan.scale.quiet_seconds)
        if seconds < plan.scale.seconds:
            self._try(replace(plan, scale=replace(plan.scale, seconds=float(seconds))))
