"""The scenarios `as-they-come`: policies compared while signals come as they do elsewhere.

One trace has prompt signals or it has not; what is true of it need not be true of another. So the
same policies are replayed with its signals as they were recorded, late, read by polls that cost
crawls, of half the hosts alone and not at all; and with old copies at first, and equal importance.
What is told of a trace is the middle of all of these, and the range.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.replay.books import settle
from services.replay.by_polls import ByValue, PolledRun, sources_of
from services.replay.by_schedule import POLLED as AT_POLLS
from services.replay.by_schedule import SchedulePolicy
from services.replay.fixed_polls import FixedPolls, poll_days, polled_every
from services.replay.policies import POLICIES, Replayed, replay_policy, replay_schedules
from services.replay.scenarios import SCENARIOS, without_signals
from services.replay.schedules import Schedule
from services.replay.slots import Budget
from services.replay.trace import Trace
from services.replay.version import code_version

Floats = NDArray[np.float64]

RECORDED: Final = "as-recorded"
POLLED: Final = "polled"
HALF: Final = "half-the-hosts"

AS_THEY_COME: Final = (
    RECORDED,
    "hour-late",
    "six-hours-late",
    "day-late",
    POLLED,
    HALF,
    "no-signals",
    "old-copies",
    "importance-one",
)
"""The names of them, in the order in which they are told."""

DRAWS: Final = 3
"""Draws of the hosts without signals, where half have none: a few hosts may have most pages."""

FRESHET, DEAF = "freshet", "freshet-no-signals"

DEFAULT: Final = (FRESHET, "nutch-tuned", "nutch-at-best", "software-heritage-at-best")
"""Policies that are compared if none is named."""

Told = Callable[[str, str], None]
"""Called with the scenario and the policy before each replay."""


@dataclass(frozen=True, slots=True)
class AsTheyCome:
    """Policies under all of the scenarios."""

    rows: list[dict[str, Any]]
    """One a scenario, draw and policy; `times` is its staleness over that of the first policy, None
    where that one is never stale."""
    about: dict[str, Any]

    def summary(self) -> list[dict[str, Any]]:
        """Of each policy but the first: the middle of `times` over scenarios, and the range.

        A scenario with several draws has the middle of them. Where the first policy is never stale
        there is nothing to compare with.
        """
        found = []
        rows = [row for row in self.rows if row["times"] is not None]
        for policy in dict.fromkeys(row["policy"] for row in rows):
            mine = [row for row in rows if row["policy"] == policy]
            times = [row["times"] for row in mine]
            middles = [
                np.median([row["times"] for row in mine if row["scenario"] == name])
                for name in dict.fromkeys(row["scenario"] for row in mine)
            ]
            middle = {"policy": policy, "middle": float(np.median(middles))}
            found.append(middle | {"least": min(times), "most": max(times)})
        return found[1:]

    def report(self) -> dict[str, Any]:
        """The comparison for JSON."""
        return {"scenarios": self.rows, "summary": self.summary()} | self.about


def compare_as_they_come(
    trace: Trace,
    budget: Budget,
    names: Sequence[str] = DEFAULT,
    *,
    seed: int = 0,
    scenarios: Sequence[str] = AS_THEY_COME,
    told: Told | None = None,
) -> AsTheyCome:
    """Replay policies under each of the scenarios.

    Args:
        trace: what happens.
        budget: of crawls, and of polls.
        names: of the policies; the others are compared with the first. Only `freshet`, with and
            without signals, and the schedules.
        seed: of what is drawn.
        scenarios: some of `AS_THEY_COME`.
        told: of progress.

    Raises:
        ValueError: a policy cannot be told of polls, or there is no crawl.
    """
    for name in names:
        if name not in (FRESHET, DEAF) and not isinstance(POLICIES[name], SchedulePolicy):
            raise ValueError(
                f"{name}: as signals come, freshet and the schedules are compared alone"
            )
    if not budget.slot_times(trace.days).size:
        raise ValueError(f"the budget has no crawl within the {trace.days:g} days of the trace")
    rows: list[dict[str, Any]] = []
    deaf: dict[str, Replayed] = {}
    for scenario in scenarios:
        for draw in range(DRAWS if scenario == HALF else 1):
            for name in names:
                if told is not None:
                    told(scenario, name)
                replayed = _replayed(trace, budget, scenario, name, seed + draw, deaf)
                row = {"scenario": scenario, "draw": draw, "policy": name}
                rows.append(row | {"staleness": replayed.books.staleness})
    about = {
        "crawls_per_day": [list(step) for step in budget.steps],
        "days": trace.days,
        "pages": len(trace),
        "changes": int(trace.change_days.size),
        "signals": int(trace.signal_days.size),
        "trace": trace.digest(),
        "seed": seed,
        "code_version": code_version(),
    }
    return AsTheyCome(compared(rows), about)


def compared(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows with `times`; the first of each scenario and draw is what the others are compared with.

    Args:
        rows: with `scenario`, `draw`, `policy` and `staleness`.
    """
    first: dict[tuple[str, int], float] = {}
    found = []
    for row in rows:
        least = first.setdefault((row["scenario"], row["draw"]), row["staleness"])
        found.append(row | {"times": row["staleness"] / least if least > 0.0 else None})
    return found


def _replayed(
    trace: Trace, budget: Budget, scenario: str, name: str, seed: int, deaf: dict[str, Replayed]
) -> Replayed:
    """Replay a policy under a scenario; `deaf` keeps those to which signals make no difference."""
    policy = POLICIES[name]
    hears = policy.heeds_signals if isinstance(policy, SchedulePolicy) else name != DEAF
    changes_signals_alone = scenario not in ("old-copies", "importance-one")
    if not hears and changes_signals_alone:
        if name not in deaf:
            deaf[name] = replay_policy(without_signals(trace), budget, name, seed=seed)
        return deaf[name]
    if scenario == POLLED:
        slots = budget.slot_times(trace.days)
        if isinstance(policy, SchedulePolicy):
            return _polled_schedule(trace, slots, policy, seed)
        run = PolledRun(trace, slots, sources_of(trace, by_host=True), ByValue())
        crawled = run.run()
        return Replayed(settle(trace, slots, crawled), {"polls": int(run.polls.sum())}, crawled)
    if scenario != RECORDED:
        trace, budget = SCENARIOS[scenario](trace, budget, seed)
    return replay_policy(trace, budget, name, seed=seed)


def _polled_schedule(trace: Trace, slots: Floats, policy: SchedulePolicy, seed: int) -> Replayed:
    """A peer polls all sources equally often; how often is a part of its grid."""
    source = sources_of(trace, by_host=True)
    quiet = without_signals(trace)
    views: dict[float, FixedPolls] = {}

    def heard(schedule: Schedule) -> tuple[Trace, Floats, Floats | None]:
        share = schedule.poll_share
        if share == 0.0:
            return quiet, slots, None
        if share not in views:
            days = poll_days(trace, slots, source, share)
            views[share] = polled_every(trace, slots, source, days)
        view = views[share]
        return view.trace, view.slot_days, view.about_days

    polled = SchedulePolicy(policy.schedule, policy.grid | AT_POLLS)
    return replay_schedules(trace, slots, polled, seed, None, heard)
