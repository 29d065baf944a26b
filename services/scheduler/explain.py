"""What the scheduler knows of its shards and of one page: for operators and `freshet explain`."""

import math
from typing import Any

import numpy as np

from services.scheduler.picking.asked import host_multiplier
from services.scheduler.picking.priority import (
    NOT_NOW,
    Terms,
    crawl_value_of,
    terms_of,
    tier_of,
)
from services.scheduler.state.attempts import failures_of
from services.scheduler.state.hosts import crawlable_from, objective_of
from services.scheduler.state.report_notes import REASONS
from services.scheduler.state.rows import ACTIVE, ATTEMPT, NEVER
from services.scheduler.state.shard import Shard
from shared.contracts.identity import PageIdentity
from shared.contracts.objectives import objective_name
from shared.policy.objectives import objective_due_days
from shared.rules.page_due import PageStanding, due_at
from shared.store.page_status import AWAY, STATUS_NAMES
from shared.units import SECONDS_PER_DAY

NO_ATTEMPT_YET = np.array([(NEVER, NEVER, NEVER, 0, NEVER, NEVER, 0, 0, 0, 0)], ATTEMPT)[0]


def shard_state(shard: Shard, multiplier: float) -> dict[str, Any]:
    """One shard in figures."""
    pages = shard.pages[: shard.used]
    selector = shard.selector
    hosts = shard.host_rows[: shard.host_count]
    by_status = np.bincount(pages["status"], minlength=len(STATUS_NAMES))
    return {
        "shard": shard.number,
        "pages": shard.count,
        "hosts": shard.host_count,
        "in_flight": shard.in_flight(shard.filled_until),
        "never_crawled": int(
            ((pages["last_crawled_at"] == NEVER) & (pages["status"] == ACTIVE)).sum()
        ),
        **{STATUS_NAMES[status]: int(by_status[status]) for status in AWAY},
        "candidates": selector.candidates,
        "guard": selector.guard,
        "rebuilds": selector.rebuilds,
        "sweeps": selector.sweeps,
        "uncertain_picks": selector.uncertain_picks,
        "limited_hosts": int((hosts["held_back"] > multiplier).sum()),
        "caught_up": shard.is_caught_up,
        "filled_until": _time(shard.filled_until),
    }


def page_state(
    shard: Shard, identity: PageIdentity, now: float, multiplier: float
) -> dict[str, Any] | None:
    """All that decides when a page is crawled; None: it is not in memory (unknown or removed)."""
    row = shard.row_of(identity.page_id)
    if row < 0:
        return None
    page = shard.pages[row]
    attempts = shard.attempts.rows
    attempt = attempts[page["attempt"]] if page["attempt"] else NO_ATTEMPT_YET
    host = shard.host_rows[page["host"]]
    number = int(shard.records[row]["page_class"])
    weight = shard.classes.weight_of(number)
    groups = shard.groups.of(int(page["host"]))
    terms = terms_of(shard.rules.picking, shard.hosts.objectives)
    tier = int(tier_of(page, attempts, now, terms))
    of_host = float(host_multiplier(host, multiplier))
    threshold = multiplier + of_host
    return {
        "url": identity.url,
        "page_id": identity.page_id,
        "shard": shard.number,
        "status": STATUS_NAMES[int(page["status"])],
        "crawl_value": float(crawl_value_of(page, now, terms)),
        "objective": objective_name(int(objective_of(page, terms.objectives))),
        "threshold": threshold,
        "multiplier": multiplier,
        "host_multiplier": of_host,
        "class": "not now" if tier == NOT_NOW else REASONS[tier],
        "due_at": _time(_due_at(page, attempt, now, threshold, terms)),
        "last_crawled_at": _time(page["last_crawled_at"]),
        "rests_until": _time(page["last_crawled_at"] + terms.least_interval),
        "signals": float(page["signals"]),
        "last_signal_at": _time(shard.signal_times.of(row)),
        "unsignalled_change_rate": float(page["alpha"]),
        "signal_evidence": float(page["kappa"]),
        "signal_rate": float(page["gamma"]),
        "importance": float(page["importance"]) / weight,
        "page_class": shard.classes.name_of(number),
        "class_weight": weight,
        "max_age_days": _finite(page["max_age"] / SECONDS_PER_DAY),
        "failures": int(attempt["failures"]),
        "unanswered": int(attempt["unanswered"]) + bool(NEVER < attempt["deadline"] <= now),
        "misses": int(attempt["misses"]),
        "retry_at": _time(attempt["retry_at"]),
        "urgent_at": _time(attempt["urgent_at"]),
        "in_flight": bool(attempt["deadline"] > now),
        "deadline_at": _time(attempt["deadline"]),
        "host": {
            "host": identity.host,
            "max_crawls_per_second": float(host["rate"]),
            "own_limit": bool(host["own_limit"]),
            "blocked_until": _time(host["blocked_until"]),
            "usable_from": _time(float(crawlable_from(host, shard.group_rows, now))),
            "groups": [
                {
                    "group": of.group,
                    "max_crawls_per_second": of.crawls_per_second,
                    "by": "default" if of.is_default else "operators",
                }
                for of in groups
            ],
            "named_group": shard.groups.named(int(page["host"])),
            "max_open_requests": int(host["most_open"]) or None,
            "open_requests": shard.open_requests.count(int(page["host"])),
            "pages": int(host["pages"]),
            "held_back_value": float(host["held_back"]),
        },
    }


def _due_at(page: Any, attempt: Any, now: float, threshold: float, terms: Terms) -> float:
    """When the page is next in turn if no signal comes; infinite: never."""
    standing = PageStanding(
        status=int(page["status"]),
        last_crawled_at=float(page["last_crawled_at"]),
        last_attempt_at=float(attempt["last_attempt_at"]),
        failures=int(failures_of(page, attempt)),
        retry_at=float(attempt["retry_at"]),
        max_age_days=float(page["max_age"]) / SECONDS_PER_DAY,
        urgent_at=float(attempt["urgent_at"]),
        requested_at=float(attempt["requested_us"]) / 1e6,
        deadline=float(attempt["deadline"]),
    )
    return due_at(
        standing,
        now,
        threshold,
        lambda value: _days_to_value(page, value, terms),
        terms.least_interval,
        terms.least_value,
    )


def _days_to_value(page: Any, value: float, terms: Terms) -> float:
    """Days from the page's last crawl until it is worth so much if no signal comes; infinite:
    it never is. Under the uniform policy a value is an age."""
    if terms.uniform:
        return value
    due = objective_due_days(
        objective_of(page, terms.objectives),
        page["importance"],
        page["alpha"],
        page["kappa"],
        page["gamma"],
        value,
        page["signals"],
    )
    return float(due[0])


def _finite(number: float) -> float | None:
    return float(number) if math.isfinite(number) else None


def _time(unix_seconds: float) -> float | None:
    return _finite(unix_seconds)
