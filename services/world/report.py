"""What a run came to, and how it stands while it goes on, as plain JSON values."""

from typing import Any

from services.world.ledger import Ledger
from services.world.web import Web
from shared.units import SECONDS_PER_DAY


def status(ledger: Ledger, web: Web, *, state: str, seconds: float, speed: float) -> dict[str, Any]:
    """How the run stands.

    Args:
        ledger: its books.
        web: its truth.
        state: waiting, running, draining or finished.
        seconds: of the wall since it began.
        speed: clock seconds in a second of the wall.
    """
    staleness = web.staleness()
    multipliers = ledger.multipliers
    return {
        "state": state,
        "seconds": round(seconds, 3),
        "day": web.day,
        "end_day": web.end if web.end != float("inf") else None,
        "freshness": 1.0 - staleness,
        "staleness": staleness,
        "freshness_now": 1.0 - web.staleness_now(),
        "bandwidth_per_second": ledger.budget.rate_at(seconds),
        "bandwidth_per_day": ledger.budget.rate_at(seconds) / speed * SECONDS_PER_DAY,
        "achieved_per_second": ledger.achieved_rate(seconds),
        "multiplier": multipliers.multiplier if multipliers else None,
        "shards": sum(a.share > 0 for a in multipliers.allotments) if multipliers else 0,
        "requests": ledger.requests,
        "answered": ledger.answered,
        "in_flight": ledger.in_flight,
        "reasons": dict(ledger.reasons),
        "results": dict(ledger.results),
        "signals": ledger.signals,
        "page_signals": ledger.page_signals,
        "dead_letters": ledger.dead_letters,
        "dead_letter_reasons": dict(ledger.dead_letter_reasons.most_common(5)),
        "latency_seconds": {hop: times.summary() for hop, times in ledger.latency.items()},
    }


def result(ledger: Ledger, web: Web, *, seconds: float, speed: float) -> dict[str, Any]:
    """What the run came to.

    Args:
        ledger: its books.
        web: its truth.
        seconds: of the wall that it lasted, without the draining at its end.
        speed: clock seconds in a second of the wall.
    """
    staleness = web.staleness()
    known = ledger.results["changed"] + ledger.results["unchanged"]
    return {
        "freshness": 1.0 - staleness,
        "staleness": staleness,
        "daily_freshness": [round(1.0 - value, 9) for value in web.daily_staleness],
        "days": web.end,
        "seconds": round(seconds, 3),
        "speed_days_per_second": speed / SECONDS_PER_DAY,
        "crawls": ledger.answered,
        "requests": ledger.requests,
        "answered": ledger.answered,
        "unanswered": ledger.in_flight,
        "answered_twice": ledger.answered_twice,
        "unasked": ledger.unasked,
        "answers_without_request": ledger.answers_without_request,
        "repeated_requests": ledger.repeated_requests,
        "duplicate_requests_in_flight": ledger.duplicates_in_flight,
        "reasons": dict(ledger.reasons),
        "results": dict(ledger.results),
        "unchanged_share": ledger.results["unchanged"] / known if known else None,
        **_pace(ledger, seconds, speed),
        "signals": ledger.signals,
        "page_signals": ledger.page_signals,
        "dead_letters": ledger.dead_letters,
        "dead_letter_reasons": dict(ledger.dead_letter_reasons.most_common(50)),
        "latency_seconds": {hop: times.summary() for hop, times in ledger.latency.items()},
    }


def _pace(ledger: Ledger, seconds: float, speed: float) -> dict[str, Any]:
    """Crawls against the budget, by the seconds of the wall."""
    budget = ledger.budget
    allowed = budget.integral(seconds)
    within = sum(count for second, count in ledger.per_second.items() if second + 1 <= seconds)
    whole_seconds = max(int(seconds), 1)
    rate = within / whole_seconds
    return {
        "seconds_over_budget": budget.seconds_over(ledger.per_second, seconds),
        "seconds_over_budget_by_arrival": budget.seconds_over(
            ledger.per_second_of_arrival, seconds
        ),
        "budget": {
            "crawls": round(allowed, 3),
            "crawls_per_second": _per_second(allowed, seconds),
            "crawls_per_day": _per_second(allowed, seconds) / speed * SECONDS_PER_DAY,
        },
        "achieved_rate": {
            "crawls_per_second": rate,
            "crawls_per_day": rate / speed * SECONDS_PER_DAY,
            "share_of_budget": within / allowed if allowed > 0 else None,
            # Without the first second, in which the first budget takes effect.
            "steady_crawls_per_second": _per_second(
                within - ledger.per_second.get(0, 0), whole_seconds - 1
            ),
        },
        "bandwidth_steps": ledger.bandwidth_steps(),
    }


def _per_second(count: float, seconds: float) -> float:
    """Count per second; 0 for no time at all."""
    return count / seconds if seconds > 0 else 0.0
