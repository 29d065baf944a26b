"""The budget in every second, each host's limit in every window, and hosts left alone."""

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from services.verify.checks.downtime import NEWS_SECONDS, Downtimes, down_within
from services.verify.checks.finding import Finding
from services.verify.ledger import Ledger
from services.world.budget import Budget, seconds_until_reached

DEPTH: Final = 2.0
"""Crawls of a host that may come at once: in any window of w seconds there are at most
2 + w·rate."""

ROUNDING: Final = 1e-3
"""Of a token: times on the topics are rounded."""


def budget(ledger: Ledger, changes: Sequence[tuple[float, float]], until: float) -> Finding:
    """No second holds more crawls than the budget allows.

    Args:
        ledger: of the run.
        changes: when the budget was set (Unix seconds), and to how many crawls per second.
        until: Unix seconds at which the budget was taken away.
    """
    begin = changes[0][0]
    allowed = Budget(
        np.array([time - begin for time, _ in changes]), np.array([rate for _, rate in changes])
    )
    counts = Counter(int(np.floor(a.request.requested_at - begin)) for a in ledger.requests)
    over = [
        f"second {second}: {count} crawls, {allowed.allowed(second, second + 1):.1f} allowed"
        for second, count in sorted(counts.items())
        if second >= 0 and allowed.seconds_over({second: count}, second + 1.0)
    ]
    seconds = until - begin
    times = np.array([asked.request.requested_at for asked in ledger.requests])
    lowered = [
        seconds_until_reached(times, at, rate, before)
        for (_, before), (at, rate) in itertools.pairwise(changes)
        if rate < before
    ]
    return Finding.of(
        "budget",
        "crawls keep to the budget in every second",
        over,
        crawls=len(ledger.requests),
        share_of_budget=round(len(ledger.requests) / max(allowed.integral(seconds), 1.0), 4),
        slowest_decrease_seconds=round(max((late or 0.0 for late in lowered), default=0.0), 2),
    )


def hosts(ledger: Ledger, limits: Mapping[str, float]) -> Finding:
    """No host is crawled more than 2 + w·rate times in any window of w seconds.

    Args:
        ledger: of the run.
        limits: crawls per second by host, the same all the time.
    """
    times: dict[str, list[float]] = defaultdict(list)
    for asked in ledger.requests:
        times[asked.request.host].append(asked.request.requested_at)

    def offenders() -> Iterator[str]:
        for host, of_host in times.items():
            worst = _most_over(of_host, limits[host])
            if worst > ROUNDING:
                yield f"{host}: {worst:.3f} crawls more than {limits[host]}/s allows"

    return Finding.of(
        "host limits", "no host is over its limit in any window", offenders(), hosts=len(times)
    )


def _most_over(times: Sequence[float], rate: float) -> float:
    """By how many crawls a token bucket is overdrawn, at most; times rise."""
    tokens, last, worst = DEPTH, times[0], 0.0
    for time in times:
        tokens = min(DEPTH, tokens + (time - last) * rate) - 1.0
        worst, last = max(worst, -tokens), time
        tokens = max(tokens, 0.0)
    return worst


def blocked_hosts(ledger: Ledger, downtimes: Downtimes) -> Finding:
    """A host that asked for a pause is not crawled until it is over, whatever restarts.

    Args:
        ledger: of the run.
        downtimes: of the faults; while something is down, news of a pause may be on its way.
    """
    pauses: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for answered in ledger.outcomes:
        outcome = answered.outcome
        if outcome.retry_after_seconds is not None:
            until = outcome.crawled_at + outcome.retry_after_seconds
            pauses[outcome.host].append((answered.written_at, until))

    def delays() -> Iterator[tuple[float, str]]:
        for asked in ledger.requests:
            at = asked.request.requested_at
            for told, until in pauses.get(asked.request.host, ()):
                if at >= until or at <= told:
                    continue
                unheard = at - told - down_within(downtimes, told, at)
                yield (
                    unheard,
                    f"{asked.request.host}: crawled at {at:.3f}, {at - told:.2f} s after it "
                    f"asked for a pause until {until:.3f}",
                )

    return Finding.of_delays(
        "pauses",
        "hosts that asked for a pause are left alone",
        delays(),
        NEWS_SECONDS,
        "slowest_news_seconds",
        pauses=sum(map(len, pauses.values())),
    )
