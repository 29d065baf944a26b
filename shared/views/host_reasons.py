"""What keeps the host of a page from being crawled, in words."""

import math
from datetime import MAXYEAR, UTC, datetime
from typing import Any, Final

from shared.rules.host_rules import HostRules
from shared.store.page_status import NEVER
from shared.units import SECONDS_PER_DAY
from shared.views.hosts import WHOSE

_LAST: Final = datetime.max.replace(microsecond=0, tzinfo=UTC).timestamp()
"""The last moment that has a date."""


def host_reasons(host: dict[str, Any], now: float) -> list[str]:
    """All that keeps a page's host from being crawled more, but the default.

    Args:
        host: its row in the database; None: no such rule.
        now: Unix seconds.
    """
    rules = HostRules(
        limit=_or(host.get("max_crawls_per_second"), math.nan),
        blocked_until=_or(host.get("blocked_until"), NEVER),
        crawl_delay=_or(host.get("crawl_delay"), math.nan),
        asked_until=_or(host.get("asked_until"), NEVER),
        failures=host.get("failures") or 0,
        failed_at=_or(host.get("failed_at"), NEVER),
        most_open=host.get("max_open_requests") or 0,
    )
    holds, reasons = rules.effective(math.inf), list[str]()
    if holds.blocked_until > now:
        until = when(holds.blocked_until, now)
        reasons.append(f"Its host is blocked until {until} ({WHOSE[holds.block_rule]}).")
    if rules.is_failing:
        reasons.append(
            f"Its host failed {rules.failures} times in a row: see `freshet hosts show`."
        )
    if math.isfinite(holds.rate):
        reasons.append(
            f"Its host takes at most {holds.rate:g} crawls a second ({WHOSE[holds.rate_rule]})."
        )
    if holds.most_open:
        reasons.append(f"Its host takes at most {holds.most_open} open requests.")
    return reasons


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def group_reasons(live: dict[str, Any] | None) -> list[str]:
    """What it shares with other hosts, as its scheduler knows it; the strictest first."""
    groups = (live or {}).get("host", {}).get("groups", [])
    return [
        f"Its host is of the group {of['group']}, whose hosts take at most "
        f"{of['max_crawls_per_second']:g} crawls a second together"
        + (", as all that crawlers name." if of.get("by") == "default" else ".")
        for of in sorted(groups, key=lambda of: float(of["max_crawls_per_second"]))
    ]


def when(time: float | None, now: float) -> str:
    """A time for people, and how far away it is; None: never."""
    if time is None:
        return "never"
    days = (time - now) / SECONDS_PER_DAY
    distance = f"in {days:.3g} days" if days >= 0 else f"{-days:.3g} days ago"
    return f"{moment(time)} ({distance})"


def moment(time: float) -> str:
    """A time of the clock for people."""
    if time > _LAST:
        return f"after the year {MAXYEAR}"
    return f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M:%S}Z"
