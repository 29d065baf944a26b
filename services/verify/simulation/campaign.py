"""Many seeds, on all cores that one has to spare, and what became of them."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Final

from services.verify.simulation.plan import Scale, draw_plan
from services.verify.simulation.run import Mutate, simulate
from services.verify.simulation.shrinking import Shrinker
from services.verify.simulation.story import describe, tell

PROCESSES: Final = 2

MOST_STORIES: Final = 3
"""So many failing seeds are shrunk and told; the others are only named."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a seed."""

    seed: int
    fingerprint: str
    broken: tuple[str, ...]
    """Names of the checks that failed."""
    examples: tuple[str, ...]
    figures: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """For a report."""
        return {
            "seed": self.seed,
            "fingerprint": self.fingerprint,
            "broken": list(self.broken),
            "examples": list(self.examples),
        }


def warm_up() -> None:
    """Compile what the workers compile when they start; simulations leave it out."""
    from services.estimator.compilation import warm_up as warm_estimator  # noqa: PLC0415
    from services.scheduler.warm_up import warm_up as warm_scheduler  # noqa: PLC0415

    warm_estimator()
    warm_scheduler()


def judge(seed: int, scale: Scale, mutate: Mutate = nullcontext) -> Verdict:
    """Run a seed."""
    result = simulate(draw_plan(seed, scale), mutate)
    return Verdict(
        seed,
        result.fingerprint,
        result.broken,
        tuple(
            f"{finding.check}: {finding.examples[0]}"
            for finding in result.findings
            if not finding.passed
        ),
        result.figures,
    )


def _judge(given: tuple[int, Scale]) -> Verdict:
    return judge(*given)


def judge_all(seeds: Sequence[int], scale: Scale, processes: int = PROCESSES) -> Iterator[Verdict]:
    """Run seeds, in their order; in several processes where there are enough of them."""
    if processes <= 1 or len(seeds) <= 2 * processes:
        warm_up()
        for seed in seeds:
            yield judge(seed, scale)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, warm_up) as pool:
        yield from pool.imap(_judge, [(seed, scale) for seed in seeds], chunksize=2)


def campaign(
    seeds: Sequence[int],
    scale: Scale,
    say: Callable[[str], None],
    noted: Callable[[int], None] = lambda _: None,
) -> dict[str, Any]:
    """Run seeds, shrink and tell what fails, and report.

    Args:
        seeds: which.
        scale: how large simulations are.
        say: prints a line.
        noted: told how many seeds are done.
    """
    began = time.monotonic()
    failed: list[Verdict] = []
    figures: Counter[str] = Counter()
    for done, verdict in enumerate(judge_all(seeds, scale), 1):
        figures.update(verdict.figures)
        if verdict.broken:
            failed.append(verdict)
            say(f"seed {verdict.seed}: broken: {', '.join(verdict.broken)}")
        noted(done)
    seconds = time.monotonic() - began
    if failed:
        warm_up()
    stories = [story_of(verdict.seed, scale) for verdict in failed[:MOST_STORIES]]
    for story in stories:
        say("")
        for line in story:
            say(line)
    return {
        "seeds": len(seeds),
        "first_seed": seeds[0] if seeds else None,
        "passed": not failed,
        "failed": [verdict.as_json() for verdict in failed],
        "stories": stories,
        "seconds": round(seconds, 1),
        "seeds_per_second": round(len(seeds) / max(seconds, 1e-9), 3),
        "requests": figures["requests"],
        "outcomes": figures["outcomes"],
        "commits": figures["commits"],
    }


def story_of(seed: int, scale: Scale, mutate: Mutate = nullcontext) -> list[str]:
    """The short story of a seed that fails."""
    found = simulate(draw_plan(seed, scale), mutate)
    if found.passed:
        return [f"seed {seed} passes"]
    return tell(Shrinker(found, mutate).shrink())


def trace_of(seed: int, scale: Scale) -> list[str]:
    """All that happens in a seed, in order, its faults first, and the fingerprint of it all."""
    result = simulate(draw_plan(seed, scale))
    lines = [f"seed {seed}"]
    lines += [f"{fault.at:8.3f} s  * {describe(fault)}" for fault in result.plan.faults]
    lines += [f"{at:10.6f} {who}: {what}" for at, who, what in result.story]
    return [*lines, f"fingerprint {result.fingerprint}"]
