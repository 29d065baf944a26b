"""Why a page was, or was not, crawled: its state, parameters and value, put into words."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from shared.contracts.objectives import FRESHNESS, objective_name
from shared.policy.objectives import objective_due_days, objective_values
from shared.policy.value import freshness
from shared.rules.page_events import failures_that_count, misses_that_count, retry_time
from shared.store.page_status import NEVER, STATUS_NAMES
from shared.units import SECONDS_PER_DAY
from shared.views.host_reasons import group_reasons, host_reasons, when


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


def explain(
    known: dict[str, Any],
    live: dict[str, Any] | None,
    multiplier: float | None,
    now: float,
    objective: int = FRESHNESS,
    bounds: Bounds = Bounds(),
) -> dict[str, Any]:
    """All that decides when a page is crawled.

    Args:
        known: what the database says (`shared.store.explain.explain_page`); its `state` has the
            `class_weight`, too.
        live: what the page's scheduler says of it; None: none was asked, or none answered.
        multiplier: λ₀ that was sent last; None: none was.
        now: clock time, Unix seconds.
        objective: what its host's pages are crawled for, by the settings here.
        bounds: of all pages, likewise.
    """
    if live is not None:
        known = known | {"state": known["state"] | _silence(known["state"], live)}
    value = _value(known, now, objective)
    multiplier = live["multiplier"] if live else multiplier
    of_host = live["host_multiplier"] if live else None
    threshold = None if multiplier is None else multiplier + (of_host or 0.0)
    due_at = live["due_at"] if live else _due_at(known, threshold, objective, bounds)
    decision = {
        "crawl_value": live["crawl_value"] if live else value,
        "expected_freshness": _expected_freshness(known, now),
        "multiplier": multiplier,
        "host_multiplier": of_host,
        "threshold": threshold,
        "objective": (live or {}).get("objective") or objective_name(objective),
        "due_at": due_at,
        "retry_at": live.get("retry_at") if live else _retry_at(known, bounds.retry_seconds),
        "in_flight": live["in_flight"] if live else None,
        "seen_by_scheduler": live is not None,
    }
    return {**known, "decision": decision, "why": _why(known, live, decision, now, bounds)}


_NOT_ACTIVE: Final = {
    "removed": "it is removed",
    "gone": "it is gone",
    "redirected": "its address only leads to another one",
    "duplicate": "it says that another URL is the one to keep",
    "disallowed": "robots.txt forbids it",
}
"""By status."""

CURVE_POINTS: Final = 61
_ROUNDING_SECONDS: Final = 1.0
"""Schedulers keep bounds of ages in fewer digits."""

_ROOM: Final = 1.2
"""A curve goes on a little behind the last moment that it is to show."""


def value_curve(
    known: dict[str, Any], decision: dict[str, Any], now: float, objective: int = FRESHNESS
) -> dict[str, list[float]] | None:
    """How a page's value rises from its last crawl on, with the signals that it has by now.

    Args:
        known: as for `explain`.
        decision: of its answer.
        now: clock time, Unix seconds.
        objective: as for `explain`.

    Returns:
        `at` (Unix seconds) and `value`, as far as now, or as it is due if that is later; None: the
        page was never crawled.
    """
    state, parameters = known["state"], known["parameters"]
    crawled_at = state["last_crawled_at"]
    if crawled_at is None:
        return None
    due = decision["due_at"] or now
    days = max(now - crawled_at, due - crawled_at, 1.0) / SECONDS_PER_DAY * _ROOM
    elapsed = np.linspace(0.0, days, CURVE_POINTS)
    values = objective_values(
        objective,
        _weighted(state),
        parameters["unsignalled_change_rate"],
        parameters["signal_evidence"],
        parameters["signal_rate"],
        elapsed,
        state["signals"],
    )
    at = crawled_at + elapsed * SECONDS_PER_DAY
    return {"at": at.tolist(), "value": values.tolist()}


def lines(answer: dict[str, Any], now: float) -> list[str]:
    """The explanation for people."""
    state, parameters, decision = answer["state"], answer["parameters"], answer["decision"]
    text = [answer["url"], *(f"  {reason}" for reason in answer["why"]), ""]
    text += _section("value", decision, now)
    text += _section("state", state | {"status": answer["status"]}, now)
    text += _section("parameters (per day)", parameters, now)
    text += _section("host", answer["host"], now)
    text.append("last crawls")
    text += [
        f"  {when(crawl['crawled_at'], now)}: {'changed' if crawl['changed'] else 'unchanged'} "
        f"after {crawl['interval_days']:.4g} days with {crawl['signals']} signals"
        for crawl in answer["crawls"]
    ] or ["  none"]
    return text


def _value(known: dict[str, Any], now: float, objective: int) -> float | None:
    crawled_at = known["state"]["last_crawled_at"]
    if crawled_at is None:
        return None
    state, parameters = known["state"], known["parameters"]
    days = max(now - crawled_at, 0.0) / SECONDS_PER_DAY
    value = objective_values(
        objective,
        _weighted(state),
        parameters["unsignalled_change_rate"],
        parameters["signal_evidence"],
        parameters["signal_rate"],
        days,
        state["signals"],
    )
    return float(value[0])


def _weighted(state: dict[str, Any]) -> float:
    """The importance that counts: times the weight of the page's class."""
    return float(state["importance"]) * float(state["class_weight"])


def _expected_freshness(known: dict[str, Any], now: float) -> float | None:
    crawled_at = known["state"]["last_crawled_at"]
    if crawled_at is None:
        return None
    parameters = known["parameters"]
    days = max(now - crawled_at, 0.0) / SECONDS_PER_DAY
    evidence = parameters["signal_evidence"] * known["state"]["signals"]
    return float(freshness(parameters["unsignalled_change_rate"], days, evidence)[0])


def _due_at(
    known: dict[str, Any], threshold: float | None, objective: int, bounds: Bounds
) -> float | None:
    """When the value reaches the threshold if no signal comes, or the page is beyond its maximum
    age; None: never, or unknown."""
    crawled_at = known["state"]["last_crawled_at"]
    if threshold is None or crawled_at is None:
        return None
    days = _days_to_value(known, max(threshold, bounds.least_value), objective)
    max_age = _max_age_days(known, None, bounds)
    if math.isfinite(max_age) and bounds.least_value > 0.0:
        max_age = max(max_age, _days_to_value(known, bounds.least_value, objective))
    days = max(min(days, max_age), bounds.least_interval_seconds / SECONDS_PER_DAY)
    return crawled_at + days * SECONDS_PER_DAY if math.isfinite(days) else None


def _days_to_value(known: dict[str, Any], value: float, objective: int) -> float:
    state, parameters = known["state"], known["parameters"]
    due = objective_due_days(
        objective,
        _weighted(state),
        parameters["unsignalled_change_rate"],
        parameters["signal_evidence"],
        parameters["signal_rate"],
        value,
        state["signals"],
    )
    return float(due[0])


def _max_age_days(known: dict[str, Any], live: dict[str, Any] | None, bounds: Bounds) -> float:
    """The bound of the page's age, its own or that of all; infinite: none."""
    own = (live or known["state"]).get("max_age_days")
    return bounds.default_max_age_days if own is None else float(own)


def _why(
    known: dict[str, Any],
    live: dict[str, Any] | None,
    decision: dict[str, Any],
    now: float,
    bounds: Bounds,
) -> list[str]:
    reasons = _request_reasons(live, now)
    if known["status"] != "active":
        reasons = [f"It is not crawled: {_NOT_ACTIVE[known['status']]}.", *reasons]
        if known["status"] != "removed" and live is not None and not live["in_flight"]:
            reasons.append(f"It may be looked at again from {when(live['retry_at'], now)} on.")
        return reasons
    if live is None:
        reasons.append("Its scheduler was not asked: λ_i and requests in flight are not known.")
    reasons += _failure_reasons(known["state"], live, decision["retry_at"], now)
    reasons += host_reasons(known["host"], now) + group_reasons(live)
    reasons += _class_reasons(known["state"], bounds)
    if known["state"]["last_crawled_at"] is None:
        by_value = live is not None and live["class"] in ("value", "retry")
        return [
            *reasons,
            _NEW_BY_VALUE if by_value else "It was never crawled: new pages go first.",
        ]
    return [*reasons, _value_reason(known, live, decision, now, bounds)]


_NEW_BY_VALUE: Final = "It was never crawled, and is tried again and again: it goes by its value."


def _request_reasons(live: dict[str, Any] | None, now: float) -> list[str]:
    """What was asked for of it, or is."""
    if live is None:
        return []
    if live["in_flight"]:
        return [f"It is asked for now; answer expected by {when(live['deadline_at'], now)}."]
    if live["class"] == "urgent":
        return ["Somebody asks for it at once: it goes first."]
    if (live.get("rests_until") or 0.0) > now:
        return [f"It was crawled a moment ago, and rests until {when(live['rests_until'], now)}."]
    return []


def _value_reason(
    known: dict[str, Any],
    live: dict[str, Any] | None,
    decision: dict[str, Any],
    now: float,
    bounds: Bounds,
) -> str:
    """Its value beside the threshold, or its age beside its bound."""
    value, threshold, due = decision["crawl_value"], decision["threshold"], decision["due_at"]
    max_age = _max_age_days(known, live, bounds)
    late_at = known["state"]["last_crawled_at"] + max_age * SECONDS_PER_DAY
    is_late = live["class"] == "max-age" if live is not None else late_at <= now
    if is_late and value >= bounds.least_value:
        since = when(late_at, now)
        return f"It is beyond its maximum age since {since}: of those the latest goes first."
    if threshold is None:
        return "There is no λ₀ yet: is the coordinator running, and a bandwidth set?"
    floor = bounds.least_value
    if value >= max(threshold, floor):
        return (
            f"Its value {value:.4g} has reached the threshold {threshold:.4g}: it is next in turn."
        )
    if floor > threshold:
        below = f"Its value {value:.4g} is below {floor:.4g}, for less than which no slot is spent"
    else:
        below = f"Its value {value:.4g} is below the threshold {threshold:.4g}"
    if due is None:
        return f"{below}: time alone never gets it there, only signals can."
    if late_at <= due + _ROUNDING_SECONDS:
        return f"{below}: it is due {when(due, now)}, beyond its maximum age."
    return f"{below}: it gets there {when(due, now)} if no signal comes."


def _silence(state: dict[str, Any], live: dict[str, Any]) -> dict[str, Any]:
    """Requests that nobody answered, as the scheduler has them, which writes them down later."""
    requests = live.get("unanswered", 0)
    return {
        "unanswered": requests,
        "unanswered_since": state.get("unanswered_since") if requests else None,
    }


def _failure_reasons(
    state: dict[str, Any], live: dict[str, Any] | None, until: float | None, now: float
) -> list[str]:
    """That nobody answers, or that the last crawl failed, and until when the page waits for it."""
    waits = until is not None and until > now
    if live is not None:  # who is asked for, at once or not, waits for nothing else
        waits &= live["class"] == "not now" and not live["in_flight"]
    if requests := state.get("unanswered"):
        last = f"the last {requests} requests" if requests > 1 else "the last request"
        wait = f": it is left alone until {when(until, now)}" if waits else ""
        return [f"Nobody answered {last} for it{wait}."]
    return [f"It waits after a failed crawl until {when(until, now)}."] if waits else []


def _retry_at(known: dict[str, Any], first: float) -> float | None:
    """Until when a page is left alone after failures and requests that nobody answered, by what
    the database says; None: there were none."""
    state = known["state"]
    [status] = (number for number, name in STATUS_NAMES.items() if name == known["status"])
    failures, misses = state.get("failures") or 0, state.get("misses") or 0
    count = failures_that_count(status, failures, misses) if failures else 0
    silent = state.get("unanswered") or 0
    last = state.get("unanswered_since") if silent else state.get("last_attempt_at")
    if count + silent == 0 or last is None:
        return None
    misses = misses_that_count(status, misses)
    crawled_at = state["last_crawled_at"]
    return float(
        retry_time(last, count + silent, misses, first, NEVER if crawled_at is None else crawled_at)
    )


def _class_reasons(state: dict[str, Any], bounds: Bounds) -> list[str]:
    if not bounds.class_share:
        return []
    return [
        f"Of the slots of its shard {bounds.class_share:.3g} are kept for its class "
        f"{state['class']}, whatever its pages are worth beside others."
    ]


def _section(title: str, values: dict[str, Any], now: float) -> list[str]:
    text = [title]
    for name, value in values.items():
        is_time = name.endswith(("_at", "_until", "_since"))
        shown = when(value, now) if is_time else _number(value)
        text.append(f"  {name.replace('_', ' '):<26}{shown}")
    return [*text, ""]


def _number(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
