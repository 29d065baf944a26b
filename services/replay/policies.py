"""Every policy that a replay knows, by name; and how one is run, tuned where it has a grid."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.replay import by_schedule, columns, values
from services.replay.books import Books, settle
from services.replay.by_rate import Facts, RatePolicy, known_by_then, run_by_rate
from services.replay.by_schedule import SchedulePolicy, run_by_schedule
from services.replay.by_value import CALENDAR, Progress, ValuePolicy, oracle_of, run_by_value
from services.replay.schedules import Schedule
from services.replay.slots import Budget
from services.replay.trace import Trace, trace_parameters
from shared.policy.lambdacrawl.binary import (
    binary_lambda_crawl,
    binary_lambda_crawl_with_floor,
)
from shared.policy.lambdacrawl.continuous import optimal_continuous_rates
from shared.policy.lambdacrawl.discrepancy import low_discrepancy_schedule
from shared.policy.lambdacrawl.harmonic import (
    lambda_crawl,
    lambda_crawl_approximate,
    lambda_crawl_incomplete,
)
from shared.policy.lambdacrawl.heuristics import change_rate_crawl
from shared.policy.lambdacrawl.learning import (
    binary_learn_and_crawl,
    lambda_learn_and_crawl,
    lambda_learn_and_crawl_approximate,
)

Floats = NDArray[np.float64]

Heard = Callable[[Schedule], tuple[Trace, Floats, Floats | None]]
"""Schedule → the trace as it hears it, its slots, and the days that signals are about."""

SHARE_LEFT = 0.97
"""How many variants a peer is tuned by is not known before; each leaves so much of the rest."""

DEFAULT_DELAY_SLOTS = 5.0
"""[N] appendix C: GREEDY-NCIS-D does not count signals that come within 5/R of a crawl."""


@dataclass(frozen=True, slots=True)
class OrderPolicy:
    """LDS: the optimal even rates of the trace's parameters, as a low-discrepancy order."""

    def parameters(self) -> dict[str, Any]:
        """For the report."""
        return {"change_rates": "those of the whole trace"}


Policy = ValuePolicy | RatePolicy | SchedulePolicy | OrderPolicy


def _lc(facts: Facts) -> Floats:
    return lambda_crawl(facts.importance, facts.change_rate, facts.complete, facts.bandwidth).rates


def _lc_io(facts: Facts) -> Floats:
    return lambda_crawl_incomplete(facts.importance, facts.change_rate, facts.bandwidth).rates


def _lca(facts: Facts) -> Floats:
    return lambda_crawl_approximate(
        facts.importance, facts.change_rate, facts.complete, facts.bandwidth
    ).rates


def _blc(facts: Facts) -> Floats:
    return binary_lambda_crawl(facts.importance, facts.change_rate, facts.bandwidth).rates


def _blc_floor(facts: Facts) -> Floats:
    return binary_lambda_crawl_with_floor(
        facts.importance, facts.change_rate, facts.bandwidth
    ).rates


def _change_rate(facts: Facts) -> Floats:
    return change_rate_crawl(facts.change_rate, facts.bandwidth)


def _llc(facts: Facts) -> Floats:
    if facts.history is None:
        raise ValueError("LLC learns: it needs a history")
    return lambda_learn_and_crawl(
        facts.importance, facts.complete, facts.history, facts.bandwidth
    ).rates


def _llca(facts: Facts) -> Floats:
    if facts.history is None:
        raise ValueError("LLCA learns: it needs a history")
    return lambda_learn_and_crawl_approximate(
        facts.importance, facts.complete, facts.history, facts.bandwidth
    ).rates


def _bllc_floor(facts: Facts) -> Floats:
    if facts.history is None:
        raise ValueError("BLLCε learns: it needs a history")
    return binary_learn_and_crawl(facts.importance, facts.history, facts.bandwidth).rates


PRODUCTION = columns.PRODUCTION

POLICIES: dict[str, Policy] = {
    "freshet": ValuePolicy(values.EXACT, PRODUCTION, selection=CALENDAR),
    "freshet-harmonic": ValuePolicy(
        values.EXACT, PRODUCTION, selection=CALENDAR, objective="harmonic"
    ),
    "freshet-age": ValuePolicy(
        values.EXACT, PRODUCTION, selection=CALENDAR, objective={"age": 0.3}
    ),
    "freshet-age-alone": ValuePolicy(
        values.EXACT, PRODUCTION, selection=CALENDAR, objective={"age": 1.0}
    ),
    "freshet-no-signals": ValuePolicy(
        values.EXACT, PRODUCTION, uses_signals=False, selection=CALENDAR
    ),
    "GREEDY": ValuePolicy(values.NO_SIGNALS, uses_signals=False),
    "GREEDY-CIS": ValuePolicy(values.TRUSTING),
    "GREEDY-CIS+": ValuePolicy(values.SELECTIVE),
    "GREEDY-NCIS": ValuePolicy(values.EXACT),
    "G-NCIS-APPROX-1": ValuePolicy(values.FIRST_TERMS, terms=1),
    "G-NCIS-APPROX-2": ValuePolicy(values.FIRST_TERMS, terms=2),
    "GREEDY-NCIS-D": ValuePolicy(values.EXACT, signal_delay_days=np.nan),
    "LDS": OrderPolicy(),
    "LC": RatePolicy(_lc),
    "LC-IO": RatePolicy(_lc_io, heeds_signals=False),
    "LCA": RatePolicy(_lca),
    "LLC": RatePolicy(_llc, learns=True),
    "LLCA": RatePolicy(_llca, learns=True),
    "BLC": RatePolicy(_blc, heeds_signals=False),
    "BLCε": RatePolicy(_blc_floor, heeds_signals=False),
    "BLLCε": RatePolicy(_bllc_floor, learns=True, heeds_signals=False),
    "uniform": SchedulePolicy(by_schedule.ROUND_ROBIN),
    "change-rate": RatePolicy(_change_rate, heeds_signals=False),
    "nutch": SchedulePolicy(by_schedule.NUTCH),
    "nutch-tuned": SchedulePolicy(by_schedule.NUTCH, by_schedule.NUTCH_GRID),
    "nutch-by-score": SchedulePolicy(
        by_schedule.NUTCH, by_schedule.NUTCH_GRID | by_schedule.SCORED
    ),
    "nutch-at-best": SchedulePolicy(
        by_schedule.NUTCH, by_schedule.AT_BEST | by_schedule.NUTCH_GRID
    ),
    "stormcrawler": SchedulePolicy(by_schedule.STORMCRAWLER),
    "stormcrawler-tuned": SchedulePolicy(by_schedule.STORMCRAWLER, by_schedule.STORMCRAWLER_GRID),
    "stormcrawler-at-best": SchedulePolicy(
        by_schedule.STORMCRAWLER, by_schedule.AT_BEST | by_schedule.STORMCRAWLER_GRID
    ),
    "fixed-interval": SchedulePolicy(by_schedule.FIXED),
    "fixed-interval-tuned": SchedulePolicy(by_schedule.FIXED, by_schedule.FIXED_GRID),
    "fixed-interval-at-best": SchedulePolicy(
        by_schedule.FIXED, by_schedule.AT_BEST | by_schedule.FIXED_GRID
    ),
    "software-heritage": SchedulePolicy(by_schedule.SOFTWARE_HERITAGE),
    "software-heritage-tuned": SchedulePolicy(
        by_schedule.SOFTWARE_HERITAGE, by_schedule.SOFTWARE_HERITAGE_GRID
    ),
    "software-heritage-lag": SchedulePolicy(by_schedule.SOFTWARE_HERITAGE_LAG),
    "software-heritage-lag-tuned": SchedulePolicy(
        by_schedule.SOFTWARE_HERITAGE_LAG, by_schedule.SOFTWARE_HERITAGE_LAG_GRID
    ),
    "software-heritage-at-best": SchedulePolicy(
        by_schedule.SOFTWARE_HERITAGE_LAG, by_schedule.AT_BEST | by_schedule.SOFTWARE_HERITAGE_GRID
    ),
}
"""Name → policy; GREEDY-NCIS-D's delay of NaN stands for 5/R."""


def is_online(name: str) -> bool:
    """Whether a policy, unless an oracle tells it, goes by nothing but what it has seen so far.

    So its replay of the beginning of a trace is the beginning of its replay of the whole. Not so:
    rates solved for the trace's mean budget and the pages whose signals are complete throughout;
    and what was tuned on the very trace.
    """
    policy = POLICIES[name]
    if isinstance(policy, ValuePolicy):
        # A delay of 5/R goes by the mean budget.
        return not np.isnan(policy.signal_delay_days)
    return isinstance(policy, SchedulePolicy) and not policy.grid


def knows_limits(name: str) -> bool:
    """Whether a policy leaves hosts alone that are at their limits.

    Not so: rates, and the order made of them, which are the papers' own.
    """
    return not isinstance(POLICIES[name], RatePolicy | OrderPolicy)


ALSO_KNOWN_AS = {"BLCe": "BLCε", "BLLCe": "BLLCε", "freshet-smoothed": "GREEDY-NCIS"}
"""For keyboards without Greek, and for those who know a policy by what it once was called."""


class UnknownPolicy(ValueError):
    """No policy has this name; the text says which there are."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """One policy's replay: its books, its parameters, and the page of each slot."""

    books: Books
    parameters: dict[str, Any]
    crawled: NDArray[np.int64]


def policy_names(chosen: str, *, limits: bool = False) -> list[str]:
    """The names in a list like `freshet,LC`, or all of them for `all`.

    Where hosts have `limits`, these are all that know of them.

    Raises:
        UnknownPolicy: one of them is no policy.
    """
    if chosen.strip() == "all":
        return [name for name in POLICIES if knows_limits(name) or not limits]
    by_small_letters = {name.casefold(): name for name in POLICIES}
    by_small_letters |= {short.casefold(): name for short, name in ALSO_KNOWN_AS.items()}
    names = [part.strip() for part in chosen.split(",") if part.strip()]
    unknown = [name for name in names if name.casefold() not in by_small_letters]
    if unknown or not names:
        what = f"there is no policy {unknown[0]!r}" if unknown else "no policy was named"
        raise UnknownPolicy(f"{what}; choose all, or some of {', '.join(POLICIES)}")
    return list(dict.fromkeys(by_small_letters[name.casefold()] for name in names))


def replay_policy(
    trace: Trace,
    budget: Budget,
    name: str,
    *,
    seed: int = 0,
    oracle: bool = False,
    progress: Progress | None = None,
) -> Replayed:
    """Replay one policy over the whole trace.

    A policy with a grid is replayed with every member of it, and the one of the least staleness
    counts: it was tuned on the very trace it is judged by, which favours it.

    Raises:
        UnknownPolicy: no policy has this name.
        ValueError: the policy cannot be solved for this trace (no page changes, say), or knows
            nothing of its host limits.
    """
    check_policy(trace, budget, name)
    policy = POLICIES[name]
    slots = budget.slot_times(trace.days)
    if isinstance(policy, ValuePolicy):
        return _replay_values(trace, slots, policy, budget, oracle, progress)
    if isinstance(policy, SchedulePolicy):
        return replay_schedules(trace, slots, policy, seed, progress)
    if isinstance(policy, RatePolicy):
        crawled = run_by_rate(trace, slots, policy, seed)
    else:
        crawled = _in_order(trace, slots, budget)
    if progress is not None:
        progress(trace.days)
    return Replayed(settle(trace, slots, crawled), policy.parameters(), crawled)


def check_policy(trace: Trace, budget: Budget, name: str) -> None:
    """See that a policy can be replayed, as far as that is known before it is.

    Raises:
        UnknownPolicy: no policy has this name.
        ValueError: rates say nothing here.
    """
    if name not in POLICIES:
        raise UnknownPolicy(f"there is no policy {name!r}; there are {', '.join(POLICIES)}")
    if knows_limits(name):
        return
    if np.isfinite(trace.host_limit).any():
        raise ValueError(f"{name} knows nothing of host limits: leave it out where hosts have some")
    if not budget.slot_times(trace.days).size:
        raise ValueError(
            f"{name}: the budget has no crawl within the {trace.days:g} days of the trace"
        )


def _in_order(trace: Trace, slots: Floats, budget: Budget) -> NDArray[np.int64]:
    """The page of each slot by LDS."""
    rates = optimal_continuous_rates(
        trace.importance,
        trace_parameters(trace).change_rate,
        budget.mean_rate(trace.days, trace.judged_from),
    ).rates
    return known_by_then(low_discrepancy_schedule(rates, slots.size), slots, trace.born_days)


def _replay_values(
    trace: Trace,
    slots: Floats,
    policy: ValuePolicy,
    budget: Budget,
    oracle: bool,
    progress: Progress | None,
) -> Replayed:
    if np.isnan(policy.signal_delay_days):
        delay = DEFAULT_DELAY_SLOTS / budget.mean_rate(trace.days, trace.judged_from)
        policy = ValuePolicy(policy.value, policy.learner, signal_delay_days=delay)
    run = run_by_value(trace, slots, policy, oracle_of(trace, oracle), progress)
    parameters = policy.parameters() | run.work
    if oracle:
        parameters["learner"] = "oracle"
    return Replayed(settle(trace, slots, run.crawled), parameters, run.crawled)


def replay_schedules(
    trace: Trace,
    slots: Floats,
    policy: SchedulePolicy,
    seed: int,
    progress: Progress | None,
    heard: Heard | None = None,
) -> Replayed:
    """Replay a peer's schedule, the best of its grid.

    `heard` says what a schedule hears of the trace, and which slots are left to it; absent: all.
    """
    pass_days = len(trace) * (trace.days - trace.judged_from) / max(slots.size, 1)
    tried = 0

    def replayed(schedule: Schedule) -> tuple[Books, NDArray[np.int64]]:
        told, left, about = (trace, slots, None) if heard is None else heard(schedule)
        crawled = run_by_schedule(told, left, schedule, seed, about)
        return settle(trace, left, crawled), crawled

    def staleness(schedule: Schedule) -> float:
        nonlocal tried
        tried += 1
        if progress is not None:
            progress(trace.days * (1.0 - SHARE_LEFT**tried))
        return replayed(schedule)[0].staleness

    best = policy.tuned(staleness, pass_days, np.random.default_rng([seed, 9]))
    books, crawled = replayed(best)
    parameters = best._asdict() | {"variants": tried, "pass_days": pass_days}
    return Replayed(books, parameters, crawled)
