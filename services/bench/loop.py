"""The whole loop at rising rates: which one it holds, and what stops it at the next."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from services.bench.flame_graphs import FlameGraphs, NotDrawn, sampler
from services.bench.processor_time import Usage
from services.bench.real_system import RealSystem, Requests, until_steady
from services.run.options import RunOptions
from services.world.budget import overdrawn
from services.world.plan import BudgetStep
from services.world.population import generate_population
from shared.units import SECONDS_PER_DAY

SIGNALS_PER_CRAWL: Final = 0.5
"""At the highest rate."""

HELD_SHARE: Final = 0.999
"""A rate of which so much is achieved is held, if no lag grows."""

LAG_SECONDS: Final = 3.0
"""Messages of so many seconds that are not read after a step are a lag that grows."""

_SETTLE_SECONDS: Final = 3.0
"""A new rate gets so long before it is measured."""

_WARM_UP_SECONDS: Final = 60.0
_SAMPLE: Final = 100_000
_BUSY: Final = 0.9
"""Share of the machine, or of the core that a process can use, that counts as all."""


@dataclass(frozen=True, slots=True)
class _Step:
    """A rate that was asked for."""

    rate: float
    start: float
    end: float
    used: dict[str, Usage]
    lags: dict[str, int]
    status: dict[str, Any]
    signals: int
    not_drawn: str | None
    """Why there are no flame graphs, where some were wanted."""


def run(
    folder: Path,
    pages: int,
    rates: Sequence[float],
    seconds: float,
    flame_graphs: Path | None = None,
) -> dict[str, Any]:
    """Hold each rate for some seconds, the lowest first, until one is not held.

    Args:
        folder: of the system.
        pages: in it.
        rates: crawls a second of the wall.
        seconds: for each.
        flame_graphs: a folder for those of each worker at each rate, which disturbs them a little;
            None: there are to be none.

    Raises:
        NotDrawn: there is nothing to draw flame graphs with. Where one could not be drawn, the
            answer says so: what was measured is not lost.
    """
    if flame_graphs is not None:
        sampler()  # or all this would be for nothing
    return asyncio.run(_run(folder, pages, sorted(rates), seconds, flame_graphs))


async def _run(
    folder: Path, pages: int, rates: Sequence[float], seconds: float, flame_graphs: Path | None
) -> dict[str, Any]:
    days_per_second = SIGNALS_PER_CRAWL * rates[-1] / (pages * signals_per_page_and_day())
    per_day = rates[0] / (days_per_second * SECONDS_PER_DAY)
    system = RealSystem(
        RunOptions(
            world="generated",
            data_dir=folder,
            pages=pages,
            speed=days_per_second,
            budget=(BudgetStep(0.0, per_day),),
        )
    )
    with system.stack.locked():
        try:
            await system.start()
            await until_steady(system, 3, _WARM_UP_SECONDS)
            steps = [await _hold(system, rate, seconds, flame_graphs) for rate in rates]
            memory = {name: usage.resident_bytes for name, usage in system.usage().items()}
            requests = await system.requests()
        finally:
            await system.stop()
    answers = [_answer(step, requests) for step in steps]
    held = [answer["asked_per_second"] for answer in answers if answer["held"]]
    return {
        "pages": pages,
        "processors": os.cpu_count(),
        "setup_seconds": system.setup_seconds,
        "days_per_second": days_per_second,
        "held_per_second": max(held, default=0.0),
        "memory_mb": {name: round(used / 1e6) for name, used in memory.items()},
        "rates": answers,
    }


def signals_per_page_and_day() -> float:
    """Of a generated world, on average."""
    sample = generate_population(_SAMPLE, 0)
    rates = sample.recall * sample.change_rate + sample.false_signal_rate
    return float(rates.mean())


async def _hold(
    system: RealSystem, rate: float, seconds: float, flame_graphs: Path | None
) -> _Step:
    await system.set_rate(rate)
    await asyncio.sleep(_SETTLE_SECONDS)
    start, before = system.now(), system.usage()
    signals = (await system.ask("world", "/status"))["page_signals"]
    drawn = None
    if flame_graphs is not None:
        drawn = FlameGraphs(flame_graphs, system.pythons(), f"{rate:.0f}", seconds)
    await asyncio.sleep(seconds)
    end, after = system.now(), system.usage()
    status = await system.ask("world", "/status")
    used = {
        name: Usage(usage.with_children - before[name].with_children)
        for name, usage in after.items()
        if name in before
    }
    passed = status["page_signals"] - signals
    not_drawn = None
    if drawn is not None:
        try:
            await asyncio.to_thread(drawn.done)
        except NotDrawn as error:
            not_drawn = str(error)
    return _Step(rate, start, end, used, await system.lags(), status, passed, not_drawn)


def _answer(step: _Step, requests: Requests) -> dict[str, Any]:
    part, seconds = requests.within(step.start, step.end), step.end - step.start
    achieved = part.slots.size / seconds
    late = part.written - part.slots
    room = step.rate * part.slots
    over = overdrawn(part.slots, room, room, 1.0)
    shares = {name: round(used.seconds / seconds, 3) for name, used in step.used.items()}
    unread = max(step.lags.values(), default=0)
    keeps_up = unread <= LAG_SECONDS * step.rate and step.status["in_flight"] <= (
        LAG_SECONDS * step.rate
    )
    held = achieved >= HELD_SHARE * step.rate and keeps_up
    return {
        "asked_per_second": step.rate,
        "seconds": round(seconds, 1),
        "achieved_per_second": round(achieved, 1),
        "signals_per_second": round(step.signals / seconds, 1),
        "held": bool(held),
        "seconds_over_budget": len({int(time - step.start) for time, _ in over}),
        "slot_to_request_seconds": _quantiles(late),
        "slot_to_request_seconds_at_the_end": _quantiles(late[-int(step.rate) :]),
        "in_flight": step.status["in_flight"],
        "unread": step.lags,
        "core_share": shares,
        "cores": round(sum(shares.values()), 3),
        "microseconds_per_crawl": {
            name: round(used.seconds / max(part.slots.size, 1) * 1e6, 1)
            for name, used in step.used.items()
        },
        "stopped_by": None if held else _stopped_by(shares),
    } | ({} if step.not_drawn is None else {"not_drawn": step.not_drawn})


def _stopped_by(shares: dict[str, float]) -> str:
    name, most = max(shares.items(), key=lambda item: item[1])
    total = sum(shares.values())
    processors = os.cpu_count() or 1
    if total > _BUSY * processors:
        return f"the processors: {total:.2f} of {processors} in use, most of it by {name}"
    if most > _BUSY:
        return f"{name}: it uses {most:.2f} of a core"
    return f"other work on this machine, or waiting: {total:.2f} cores in use, {name} {most:.2f}"


def _quantiles(values: Any) -> dict[str, float | None]:
    if not values.size:
        return {"p50": None, "p99": None}
    return {
        "p50": round(float(np.quantile(values, 0.5)), 3),
        "p99": round(float(np.quantile(values, 0.99)), 3),
    }
