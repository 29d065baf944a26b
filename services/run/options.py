"""What a run was asked for, with everything left out filled in."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from services.world.plan import BudgetStep, FleetPlan

__all__ = ["BudgetStep", "FleetPlan", "RunOptions", "WorldKind", "budget_of"]

CLOCK_ORIGIN = 1_700_000_000.0
"""Where simulated time begins, Unix seconds."""

DEFAULT_PAGES = 20_000
DEFAULT_GENERATED_SPEED = 0.25
"""Days per second: some hundred crawls a second with the default population and budget."""

DEFAULT_TRACE_SPEED = 1.0
DEFAULT_CRAWLS_PER_PAGE_AND_DAY = 0.1
DEFAULT_PARTITIONS = 8
"""For one machine; a run's data is thrown away, so the number binds nobody."""

WorldKind = Literal["none", "generated", "trace"]


def budget_of(steps: Iterable[tuple[float, float]]) -> tuple[BudgetStep, ...]:
    """A budget of days and the crawls per clock second that hold from each of them on."""
    return tuple(BudgetStep(day, crawls_per_second) for day, crawls_per_second in steps)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """A run."""

    world: WorldKind
    data_dir: Path
    begins_empty: bool = False
    """Data of earlier runs is thrown away, as that of a simulated run always is."""
    broker: Literal["local", "apache"] = "local"
    policy: Literal["crawl-value", "uniform"] | None = None
    """None: the settings'."""
    partitions: int | None = None
    """None: the settings', or the default for one machine."""
    schedulers: int = 1
    pages: int = DEFAULT_PAGES
    """Of a generated world."""
    pages_file: Path | None = None
    events_file: Path | None = None
    speed: float = DEFAULT_GENERATED_SPEED
    """Days per second."""
    days: float | None = None
    budget: tuple[BudgetStep, ...] = ()
    """The first step's rate holds from the start; empty: whatever stands on the broker."""
    fleet: FleetPlan = field(default_factory=FleetPlan)
    """How the simulated crawlers and hosts behave."""
    seed: int = 0
    report: Path | None = None
    view: bool = True
    as_json: bool = False
