"""The rules of a host, in figures and in a line."""

import math
from collections.abc import Mapping
from typing import Any, Final

from shared.rules.host_rules import HostRules, Rule

WHOSE: Final[dict[Rule, str]] = {
    "default": "the default",
    "operator": "operators",
    "robots": "robots.txt",
    "host": "the host asked for it",
    "learned": "it fails",
}
"""Whose rule binds, in words."""


def described(row: Mapping[str, Any], default: float, now: float) -> dict[str, Any]:
    """All rules of a host, and which of them binds.

    Args:
        row: its columns in the database.
        default: crawls per second of a host that nobody says anything about.
        now: Unix seconds.

    Returns:
        `max_crawls_per_second`, `by`, `blocked_until`, `blocked_by`, `max_open_requests` and
        `open_requests_by` are what holds; the others are each writer's own, and `named_group` is
        what outcomes say that the host is of. None: no such rule.
    """
    rules = HostRules.read(row)
    holds = rules.effective(default)
    is_blocked = holds.blocked_until > now
    return {
        "host": row["host"],
        "shard": row["shard"],
        "max_crawls_per_second": holds.rate,
        "by": WHOSE[holds.rate_rule],
        "blocked_until": holds.blocked_until if is_blocked else None,
        "blocked_by": WHOSE[holds.block_rule] if is_blocked else None,
        "max_open_requests": holds.most_open or None,
        "open_requests_by": WHOSE["operator"] if holds.most_open else None,
        "operators_limit": _known(rules.limit),
        "operators_block_until": _known(rules.blocked_until),
        "crawl_delay_seconds": _known(rules.crawl_delay),
        "asked_until": _known(rules.asked_until),
        "named_group": row.get("named_group"),
        "failures": rules.failures,
        "failed_at": _known(rules.failed_at) if rules.is_failing else None,
        "back_off_seconds": rules.back_off_seconds,
    }


def line_of(host: Mapping[str, Any], now: float) -> str:
    """A host in one line."""
    text = f"{host['host']:<40} {host['max_crawls_per_second']:.6g}/s ({host['by']})"
    if host["max_open_requests"] is not None:
        text += f", at most {host['max_open_requests']} open requests ({host['open_requests_by']})"
    if host["blocked_until"] is None:
        return text
    hours = (host["blocked_until"] - now) / 3600
    return f"{text}, left alone for {hours:.3g} hours ({host['blocked_by']})"


def _known(number: float) -> float | None:
    return number if math.isfinite(number) else None
