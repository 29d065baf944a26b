"""What a page is worth, how it stands, and when it is due: by what the database says of it."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.contracts.objectives import FRESHNESS
from shared.policy.objectives import objective_due_days, objective_values
from shared.policy.value import freshness
from shared.rules.page_due import PageStanding, due_at
from shared.rules.page_events import failures_that_count, misses_that_count, retry_time
from shared.store.page_status import NEVER, STATUS_NAMES
from shared.units import SECONDS_PER_DAY

CURVE_POINTS: Final = 61

_ROOM: Final = 1.2
"""A curve goes on a little behind the last moment that it is to show."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What settings say of all pages, as far as it is known here."""

    retry_seconds: float = 300.0
    """Wait after a page's first failure."""
    least_interval_seconds: float = 0.0
    """From a page's last crawl to the next."""
    default_max_age_days: float = math.inf
    """Of pages that have no bound of their own."""
    least_value: float = 0.0
    """No slot is spent on a page that is worth less."""
    class_share: float = 0.0
    """Part of the slots that is kept for the page's class."""
    names_class: bool = True
    """Whether they say anything of the page's class."""
    uniform: bool = False
    """The oldest page goes first: what a page is worth is its age in days."""


USUAL: Final = Bounds()


def value_now(
    known: dict[str, Any], now: float, objective: int, bounds: Bounds = USUAL
) -> float | None:
    """A page's crawl value; None: it was never crawled.

    Args:
        known: as for `explaining.explain`.
        now: clock time, Unix seconds.
        objective: what its host's pages are crawled for.
        bounds: of all pages.
    """
    crawled_at = known["state"]["last_crawled_at"]
    if crawled_at is None:
        return None
    days = max(now - crawled_at, 0.0) / SECONDS_PER_DAY
    return float(_values(known, np.array([days]), objective, bounds)[0])


def value_curve(
    known: dict[str, Any],
    decision: dict[str, Any],
    now: float,
    objective: int = FRESHNESS,
    bounds: Bounds = USUAL,
) -> dict[str, list[float]] | None:
    """How a page's value rises from its last crawl on, with the signals that it has by now.

    Args:
        known: as for `explaining.explain`.
        decision: of its answer.
        now: clock time, Unix seconds.
        objective: as for `value_now`, and so are the bounds.
        bounds: of all pages.

    Returns:
        `at` (Unix seconds) and `value`, as far as now, or as it is due if that is later; None: the
        page was never crawled.
    """
    crawled_at = known["state"]["last_crawled_at"]
    if crawled_at is None:
        return None
    due = decision["due_at"] or now
    days = max(now - crawled_at, due - crawled_at, 1.0) / SECONDS_PER_DAY * _ROOM
    elapsed = np.linspace(0.0, days, CURVE_POINTS)
    values = _values(known, elapsed, objective, bounds)
    at = crawled_at + elapsed * SECONDS_PER_DAY
    return {"at": at.tolist(), "value": values.tolist()}


def _values(
    known: dict[str, Any], elapsed: NDArray[np.float64], objective: int, bounds: Bounds
) -> NDArray[np.float64]:
    if bounds.uniform:
        return elapsed
    state = known["state"]
    values = objective_values(
        objective, _weighted(state), *_rates(known), elapsed, state["signals"]
    )
    return np.asarray(values)


def _rates(known: dict[str, Any]) -> tuple[float, float, float]:
    """α, κ and γ."""
    parameters = known["parameters"]
    names = ("unsignalled_change_rate", "signal_evidence", "signal_rate")
    alpha, kappa, gamma = (parameters[name] for name in names)
    return alpha, kappa, gamma


def _weighted(state: dict[str, Any]) -> float:
    """The importance that counts: times the weight of the page's class."""
    return float(state["importance"]) * float(state["class_weight"])


def expected_freshness(known: dict[str, Any], now: float) -> float | None:
    """The probability that a page's copy is fresh; None: there is no copy."""
    crawled_at = known["state"]["last_crawled_at"]
    if crawled_at is None:
        return None
    alpha, kappa, _ = _rates(known)
    days = max(now - crawled_at, 0.0) / SECONDS_PER_DAY
    return float(freshness(alpha, days, kappa * known["state"]["signals"])[0])


def standing_of(known: dict[str, Any], live: dict[str, Any] | None, bounds: Bounds) -> PageStanding:
    """How a page stands: not what it was last asked for, nor whether that waits for its answer,
    which only its scheduler knows.

    Args:
        known: as for `explaining.explain`.
        live: what its scheduler says, which knows its maximum age; None: nothing.
        bounds: of all pages.
    """
    state = known["state"]

    def at(name: str) -> float:
        time = state.get(name)
        return NEVER if time is None else float(time)

    [status] = (number for number, name in STATUS_NAMES.items() if name == known["status"])
    failures, misses = state.get("failures") or 0, state.get("misses") or 0
    silent = state.get("unanswered") or 0
    count = silent + (failures_that_count(status, failures, misses) if failures else 0)
    last = at("unanswered_since") if silent else at("last_attempt_at")
    retry_at = NEVER
    if count and last > NEVER:
        misses = misses_that_count(status, misses)
        crawled_at = at("last_crawled_at")
        retry_at = float(retry_time(last, count, misses, bounds.retry_seconds, crawled_at))
    own = (live or state).get("max_age_days")
    return PageStanding(
        status=status,
        last_crawled_at=at("last_crawled_at"),
        last_attempt_at=max(at("last_attempt_at"), at("last_crawled_at")),
        failures=count,
        retry_at=retry_at,
        max_age_days=bounds.default_max_age_days if own is None else float(own),
        urgent_at=at("urgent_at"),
    )


def due_by_value(
    known: dict[str, Any],
    standing: PageStanding,
    now: float,
    threshold: float | None,
    objective: int,
    bounds: Bounds,
) -> float | None:
    """When a page is next in turn if no signal comes; None: never, or there is no λ₀ yet.

    Args:
        known: as for `explaining.explain`.
        standing: of the page.
        now: clock time, Unix seconds.
        threshold: that its value must reach; None: none was sent.
        objective: as for `value_now`, and so are the bounds.
        bounds: of all pages.
    """
    if threshold is None:
        return None

    def days_to_value(value: float) -> float:
        if bounds.uniform:
            return value
        state = known["state"]
        due = objective_due_days(
            objective, _weighted(state), *_rates(known), value, state["signals"]
        )
        return float(due[0])

    least = bounds.least_interval_seconds, bounds.least_value
    return finite(due_at(standing, now, threshold, days_to_value, *least))


def finite(number: float) -> float | None:
    """A number, None in place of one that is infinite."""
    return float(number) if math.isfinite(number) else None
