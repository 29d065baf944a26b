"""One mutant: seeds of the simulator until a check finds it, each beside the same seed without."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from services.verify.mutants.mutant import Mutant
from services.verify.simulation.campaign import judge
from services.verify.simulation.plan import Scale


@dataclass(frozen=True, slots=True)
class Trial:
    """What became of a mutant."""

    mutant: Mutant
    caught_by: tuple[str, ...]
    """Checks that failed with it, and do not fail without it; empty: it was not found."""
    seeds: int
    """How many were run, the last one with what found it."""
    seed: int | None
    """That one."""
    example: str
    failed_without: tuple[int, ...]
    """Seeds that fail without the mutant too: nothing is shown by them."""

    @property
    def is_caught(self) -> bool:
        """Whether a check has found it."""
        return bool(self.caught_by)

    def as_json(self) -> dict[str, Any]:
        """For a report."""
        return {
            "name": self.mutant.name,
            "promise": self.mutant.promise.value,
            "what": self.mutant.what,
            "caught_by": list(self.caught_by),
            "seeds": self.seeds,
            "seed": self.seed,
            "example": self.example,
            "failed_without": list(self.failed_without),
        }


@lru_cache(maxsize=4096)
def broken_without(seed: int, scale: Scale) -> frozenset[str]:
    """Checks that fail though nothing is planted."""
    return frozenset(judge(seed, scale).broken)


def try_out(mutant: Mutant, seeds: Iterable[int]) -> Trial:
    """Run seeds until a check finds a mutant."""
    failed_without: list[int] = []
    count = 0
    for count, seed in enumerate(seeds, 1):
        without = broken_without(seed, mutant.scale)
        if without:
            failed_without.append(seed)
        verdict = judge(seed, mutant.scale, mutant.plant)
        found = tuple(c for c in verdict.broken if c not in without)
        if found:
            text = next(e for e in verdict.examples if e.startswith(f"{found[0]}: "))
            return Trial(mutant, found, count, seed, text, tuple(failed_without))
    return Trial(mutant, (), count, None, "", tuple(failed_without))
