"""Compiles what the workers run, before tests wait for workers: `python tests/kernels.py`.

In a fresh clone no kernel is compiled yet. Workers compile what they need before they say that they
are ready, for a minute or two on a busy machine, and the tests with servers come first.

What is loaded stays, as in a worker: looking through it for garbage is a seventh of the compiling.
And little of what a compiler makes is garbage that only a search finds: it is searched for seldom,
which is a twelfth of the rest, for 4 % more memory.
"""

import gc
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context


def search_seldom() -> None:
    """Leave what is loaded alone, and search the rest for garbage seldom."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def scheduler() -> None:
    """What the scheduler runs."""
    from services.scheduler.warm_up import warm_up

    search_seldom()
    warm_up()


def others() -> None:
    """What the estimator and the ingester run; and what the scheduler runs besides, where pages are
    crawled for something else than freshness."""
    from services.estimator.compilation import warm_up
    from services.ingester.debounce import Debouncer
    from services.scheduler.warm_up import warm_up as warm_scheduler
    from shared.contracts.objectives import DEFAULT
    from shared.rules.host_objectives import HostObjectives

    search_seldom()
    warm_up()
    Debouncer(1.0)
    # Last: what both kinds of schedulers run is there by now.
    warm_scheduler(HostObjectives({DEFAULT: "harmonic"}))


KINDS: tuple[Callable[[], None], ...] = (scheduler, others)


if __name__ == "__main__":
    # A compiler uses one core; what several kinds need at one moment is compiled by each.
    with ProcessPoolExecutor(len(KINDS), get_context("spawn")) as pool:
        for compiled in [pool.submit(kind) for kind in KINDS]:
            compiled.result()
