"""Many seeds, on all cores that one has to spare, and what became of them."""

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from services.verify.simulation.plan import Scale, draw_plan
from services.verify.simulation.run import Mutate, simulate
from services.verify.simulation.shrinking import Shrinker
from services.verify.simulation.story import describe, tell

PROCESSES: Final = os.cpu_count() or 1
"""One a core."""

FEWEST_SEEDS: Final = 5
"""A process that has fewer to run is not worth its start."""

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
    cpu_seconds: float = 0.0
    """What it took of a processor, checks and all."""

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
    from shared.contracts.objectives import DEFAULT  # noqa: PLC0415
    from shared.rules.host_objectives import HostObjectives  # noqa: PLC0415

    warm_estimator()
    warm_scheduler()
    # Some seeds have them.
    warm_scheduler(HostObjectives({DEFAULT: "harmonic"}))


def judge(
    seed: int, scale: Scale, mutate: Mutate = nullcontext, database_url: str | None = None
) -> Verdict:
    """Run a seed; the arguments are those of `simulate`."""
    began = time.process_time()
    result = simulate(draw_plan(seed, scale), mutate, database_url)
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
        time.process_time() - began,
    )


def _judge(given: tuple[int, Scale]) -> Verdict:
    return judge(*given)


def judge_all(
    seeds: Sequence[int],
    scale: Scale,
    processes: int | None = None,
    database_url: str | None = None,
) -> Iterator[Verdict]:
    """Run seeds, and tell of them in their order.

    Args:
        seeds: which.
        scale: how large simulations are.
        processes: that share them; None: one a core, where there are enough seeds: each takes some
            seconds to start.
        database_url: of a PostgreSQL that runs beside the model, for one process; None: none does.
    """
    if database_url is not None:
        processes = 1
    if processes is None:
        processes = min(PROCESSES, len(seeds) // FEWEST_SEEDS)
    if processes <= 1:
        warm_up()
        for seed in seeds:
            yield judge(seed, scale, database_url=database_url)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, warm_up) as pool:
        yield from pool.imap(_judge, [(seed, scale) for seed in seeds], chunksize=4)


def campaign(
    seeds: Sequence[int],
    scale: Scale,
    say: Callable[[str], None],
    noted: Callable[[int], None] = lambda _: None,
    database_url: str | None = None,
) -> dict[str, Any]:
    """Run seeds, shrink and tell what fails, and report.

    Args:
        seeds: which.
        scale: how large simulations are.
        say: prints a line.
        noted: told how many seeds are done.
        database_url: see `judge_all`.
    """
    began = time.monotonic()
    failed: list[Verdict] = []
    figures: Counter[str] = Counter()
    cpu_seconds = 0.0
    for done, verdict in enumerate(judge_all(seeds, scale, database_url=database_url), 1):
        figures.update(verdict.figures)
        cpu_seconds += verdict.cpu_seconds
        if verdict.broken:
            failed.append(verdict)
            say(f"seed {verdict.seed}: broken: {', '.join(verdict.broken)}")
        noted(done)
    seconds = time.monotonic() - began
    if failed:
        warm_up()
    told = failed[:MOST_STORIES]
    stories = [story_of(verdict.seed, scale, database_url=database_url) for verdict in told]
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
        "cpu_seconds_per_seed": round(cpu_seconds / max(len(seeds), 1), 3),
        "requests": figures["requests"],
        "outcomes": figures["outcomes"],
        "commits": figures["commits"],
    }


def story_of(
    seed: int, scale: Scale, mutate: Mutate = nullcontext, database_url: str | None = None
) -> list[str]:
    """The short story of a seed that fails; the arguments are those of `simulate`."""
    found = simulate(draw_plan(seed, scale), mutate, database_url)
    if found.passed:
        return [f"seed {seed} passes"]
    run = partial(simulate, database_url=database_url)
    return tell(Shrinker(found, mutate, run).shrink())


def trace_of(seed: int, scale: Scale) -> list[str]:
    """All that happens in a seed, in order, its faults first, and the fingerprint of it all."""
    result = simulate(draw_plan(seed, scale))
    lines = [f"seed {seed}"]
    lines += [f"{fault.at:8.3f} s  * {describe(fault)}" for fault in result.plan.faults]
    lines += [f"{at:10.6f} {who}: {what}" for at, who, what in result.story]
    return [*lines, f"fingerprint {result.fingerprint}"]
