"""Why a page was, or was not, crawled: its state, parameters and value, put into words."""

from typing import Any, Final

from shared.contracts.objectives import FRESHNESS, objective_name
from shared.rules.page_due import PageStanding
from shared.units import SECONDS_PER_DAY
from shared.views.host_reasons import group_reasons, host_reasons, when
from shared.views.page_value import (
    USUAL,
    Bounds,
    due_by_value,
    expected_freshness,
    finite,
    standing_of,
    value_now,
)


def explain(
    known: dict[str, Any],
    live: dict[str, Any] | None,
    multiplier: float | None,
    now: float,
    objective: int = FRESHNESS,
    bounds: Bounds = USUAL,
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
    value = value_now(known, now, objective, bounds)
    standing = standing_of(known, live, bounds)
    multiplier = live["multiplier"] if live else multiplier
    of_host = live["host_multiplier"] if live else None
    threshold = None if multiplier is None else multiplier + (of_host or 0.0)
    due = (
        live["due_at"] if live else due_by_value(known, standing, now, threshold, objective, bounds)
    )
    decision = {
        "crawl_value": live["crawl_value"] if live else value,
        "expected_freshness": expected_freshness(known, now),
        "multiplier": multiplier,
        "host_multiplier": of_host,
        "threshold": threshold,
        "objective": (live or {}).get("objective") or objective_name(objective),
        "due_at": due,
        "retry_at": live.get("retry_at") if live else finite(standing.retry_at),
        "in_flight": live["in_flight"] if live else None,
        "seen_by_scheduler": live is not None,
    }
    return {
        **known,
        "decision": decision,
        "why": _why(known, live, standing, decision, now, bounds),
    }


_NOT_ACTIVE: Final = {
    "removed": "it is removed",
    "gone": "it is gone",
    "redirected": "its address only leads to another one",
    "duplicate": "it says that another URL is the one to keep",
    "disallowed": "robots.txt forbids it",
}
"""By status."""

_ROUNDING_SECONDS: Final = 1.0
"""Schedulers keep bounds of ages in fewer digits."""


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


def _why(
    known: dict[str, Any],
    live: dict[str, Any] | None,
    standing: PageStanding,
    decision: dict[str, Any],
    now: float,
    bounds: Bounds,
) -> list[str]:
    reasons = _request_reasons(live, standing, now)
    if known["status"] != "active":
        reasons = [f"It is not crawled: {_NOT_ACTIVE[known['status']]}.", *reasons]
        is_looked_at = known["status"] != "removed" and decision["retry_at"] is not None
        if is_looked_at and not decision["in_flight"]:
            reasons.append(f"It may be looked at again from {when(decision['retry_at'], now)} on.")
        return reasons
    if live is None:
        reasons.append("Its scheduler was not asked: λ_i and requests in flight are not known.")
    reasons += _failure_reasons(known["state"], live, standing, decision["retry_at"], now)
    reasons += host_reasons(known["host"], now) + group_reasons(live)
    reasons += _class_reasons(known["state"], bounds)
    if known["state"]["last_crawled_at"] is None:
        by_value = live["class"] in ("value", "retry") if live is not None else False
        by_value |= not standing.has_claim
        return [
            *reasons,
            _NEW_BY_VALUE if by_value else "It was never crawled: new pages go first.",
        ]
    return [*reasons, _value_reason(live, standing, decision, now, bounds)]


_URGENT: Final = "Somebody asks for it at once: it goes first."
_NEW_BY_VALUE: Final = "It was never crawled, and is tried again and again: it goes by its value."


def _request_reasons(live: dict[str, Any] | None, standing: PageStanding, now: float) -> list[str]:
    """What was asked for of it, or is."""
    if live is None:
        return [_URGENT] if standing.is_crawled and standing.urgent_from <= now else []
    if live["in_flight"]:
        return [f"It is asked for now; answer expected by {when(live['deadline_at'], now)}."]
    if live["class"] == "urgent":
        return [_URGENT]
    if (live.get("rests_until") or 0.0) > now:
        return [f"It was crawled a moment ago, and rests until {when(live['rests_until'], now)}."]
    return []


def _value_reason(
    live: dict[str, Any] | None,
    standing: PageStanding,
    decision: dict[str, Any],
    now: float,
    bounds: Bounds,
) -> str:
    """Its value beside the threshold, or its age beside its bound."""
    value, threshold, due = decision["crawl_value"], decision["threshold"], decision["due_at"]
    late_at = standing.last_crawled_at + standing.max_age_days * SECONDS_PER_DAY
    tier = live["class"] if live is not None else None
    is_late = tier == "max-age"
    if tier in (None, "not now"):
        is_late = standing.has_claim and late_at <= now
    is_free = tier != "not now" if live is not None else due is None or due <= now
    waits = "" if is_free or due is None else f": it waits, and is due {when(due, now)}"
    if is_late and value >= bounds.least_value:
        since = f"It is beyond its maximum age since {when(late_at, now)}"
        return f"{since}{waits or ': of those the latest goes first'}."
    if threshold is None:
        return "There is no λ₀ yet: is the coordinator running, and a bandwidth set?"
    floor = bounds.least_value
    if value >= max(threshold, floor):
        reached = f"Its value {value:.4g} has reached the threshold {threshold:.4g}"
        return f"{reached}{waits or ': it is next in turn'}."
    if floor > threshold:
        below = f"Its value {value:.4g} is below {floor:.4g}, for less than which no slot is spent"
    else:
        below = f"Its value {value:.4g} is below the threshold {threshold:.4g}"
    if due is None:
        return f"{below}: time alone never gets it there, only signals can."
    if standing.has_claim and late_at <= due + _ROUNDING_SECONDS:
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
    state: dict[str, Any],
    live: dict[str, Any] | None,
    standing: PageStanding,
    until: float | None,
    now: float,
) -> list[str]:
    """That nobody answers, or that the last crawl failed, and until when the page waits for it."""
    waits = until is not None and until > now
    if live is not None:  # who is asked for, at once or not, waits for nothing else
        waits &= live["class"] == "not now" and not live["in_flight"]
    else:
        waits &= standing.urgent_from > now
    if requests := state.get("unanswered"):
        last = f"the last {requests} requests" if requests > 1 else "the last request"
        wait = f": it is left alone until {when(until, now)}" if waits else ""
        return [f"Nobody answered {last} for it{wait}."]
    return [f"It waits after a failed crawl until {when(until, now)}."] if waits else []


def _class_reasons(state: dict[str, Any], bounds: Bounds) -> list[str]:
    if state.get("class") is not None and not bounds.names_class:
        return [f"Its class {state['class']} counts for nothing: FRESHET_CLASSES has none of it."]
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
