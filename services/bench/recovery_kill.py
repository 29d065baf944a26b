"""Kill -9 of one of two schedulers, with real processes: when are its shards served again?"""

import asyncio
from pathlib import Path
from typing import Any, Final

import click
import numpy as np
from numpy.typing import NDArray

from services.bench.real_system import RealSystem, until_steady
from services.run.options import RunOptions
from services.world.plan import BudgetStep
from shared.units import SECONDS_PER_DAY

SHARDS: Final = 8
DAYS_PER_SECOND: Final = 0.02
WATCHED_SECONDS: Final = 30.0
"""After the kill; the dead scheduler stays away."""

_GOOD_SECONDS: Final = 5
_PATIENCE_SECONDS: Final = 120.0


async def kill_one(folder: Path, pages: int, rate: float) -> dict[str, Any]:
    """Let two schedulers crawl at a budget, and kill one.

    Returns:
        what `served_again` says, seconds of the wall, and what was run.

    Raises:
        click.ClickException: the budget is not met to begin with.
    """
    options = RunOptions(
        world="generated",
        data_dir=folder,
        partitions=SHARDS,
        schedulers=2,
        pages=pages,
        speed=DAYS_PER_SECOND,
        budget=(BudgetStep(0.0, rate / (DAYS_PER_SECOND * SECONDS_PER_DAY)),),
    )
    system = RealSystem(options)
    with system.stack.locked():
        try:
            await system.start()
            if not await until_steady(system, _GOOD_SECONDS, _PATIENCE_SECONDS):
                raise click.ClickException(f"{rate} crawls/s are not reached: lower --rate")
            name = next(name for name in system.stack.ports if name.startswith("scheduler"))
            shards = {int(s["shard"]) for s in (await system.ask(name, "/shards"))["shards"]}
            killed = system.now()
            await system.kill(name)
            await asyncio.sleep(WATCHED_SECONDS)
            requests = await system.requests()
        finally:
            await system.stop()
    return {
        "pages": pages,
        "shards": SHARDS,
        "crawls_per_second": rate,
        "killed_after_seconds": round(killed, 1),
        **served_again(requests.slots, requests.shards, shards, killed),
    }


def served_again(
    times: NDArray[np.float64], owners: NDArray[np.int64], shards: set[int], killed: float
) -> dict[str, Any]:
    """When shards were served again.

    Args:
        times: of all requests, seconds.
        owners: shard of each.
        shards: of the killed scheduler.
        killed: when.

    Returns:
        `seconds_until_served`: from the kill to the first request of the last of its shards, None
        if one has none; `by_shard`; `longest_gap_of_others_seconds` in the same time.
    """
    later = times > killed
    first = {
        shard: float(times[later & (owners == shard)].min() - killed)
        for shard in sorted(shards)
        if (later & (owners == shard)).any()
    }
    others = np.sort(times[later & ~np.isin(owners, list(shards))])
    return {
        "shards_of_the_killed": sorted(shards),
        "seconds_until_served": (
            round(max(first.values()), 3) if shards and first.keys() == shards else None
        ),
        "by_shard": {str(shard): round(seconds, 3) for shard, seconds in first.items()},
        "longest_gap_of_others_seconds": (
            round(float(np.diff(others, prepend=killed).max()), 3) if others.size else None
        ),
    }
