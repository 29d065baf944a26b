"""All mutants, in several processes, and what became of them."""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from services.verify.mutants.catalogue import MUTANTS
from services.verify.mutants.mutant import Mutant
from services.verify.mutants.trial import Trial, try_out
from services.verify.simulation.campaign import PROCESSES, warm_up

_BY_NAME: Final = {mutant.name: mutant for mutant in MUTANTS}


def _try_out(given: tuple[str, range]) -> Trial:
    return try_out(_BY_NAME[given[0]], given[1])


def try_all(mutants: Sequence[Mutant], seeds: range, processes: int = PROCESSES) -> Iterator[Trial]:
    """Try mutants one after the other; in several processes where there are enough of them."""
    if processes <= 1 or len(mutants) <= processes:
        warm_up()
        for mutant in mutants:
            yield try_out(mutant, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with context.Pool(processes, warm_up) as pool:
        yield from pool.imap(_try_out, [(mutant.name, seeds) for mutant in mutants])


def campaign(seeds: range, say: Callable[[str], None]) -> dict[str, Any]:
    """Plant each fault, run seeds until a check finds it, and report.

    Args:
        seeds: that are run for each, until it is found.
        say: prints a line.
    """
    began = time.monotonic()
    trials: list[Trial] = []
    for trial in try_all(MUTANTS, seeds):
        trials.append(trial)
        say(_line(trial))
    return {
        "mutants": len(trials),
        "caught": sum(trial.is_caught for trial in trials),
        "passed": all(trial.is_caught and not trial.failed_without for trial in trials),
        "failed_without": sorted({seed for trial in trials for seed in trial.failed_without}),
        "seconds": round(time.monotonic() - began, 1),
        "each": [trial.as_json() for trial in trials],
    }


def _line(trial: Trial) -> str:
    seeds = f"{trial.seeds} seed{'s' if trial.seeds > 1 else ''}"
    name = trial.mutant.name
    if trial.failed_without:
        return f"{name}: seeds {list(trial.failed_without)} fail without it too"
    if not trial.is_caught:
        return f"{name}: NOT CAUGHT in {seeds}: {trial.mutant.what}"
    return f"{name}: {', '.join(trial.caught_by)} ({seeds})"
