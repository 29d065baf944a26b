"""The budget, each host's limit, and hosts left alone: by slots, and by when the broker had it.

A request fills a slot of the budget and says which. A pacer gives up slots that it could not fill
for `FILL_SECONDS`, and takes back what its producer does not have `HAND_SECONDS` later; so the
broker has a request within that and `MARGIN_SECONDS` of its slot, and what a fleet sees in any
window are the slots of that window and of so long before it. What was filled and could not be sent,
as broker, scheduler or the machine stood still, may come later, but not once the scheduler can have
lost its shards: after the session's time-out.
"""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.verify.checks.downtime import NEWS_SECONDS, Downtimes, down_within
from services.verify.checks.finding import Finding
from services.verify.ledger import Asked, Ledger, pauses
from services.world.budget import Budget, overdrawn, seconds_until_reached

Named = Mapping[str, tuple[str, float]]
"""Host → the group that outcomes name, and the time from which on schedulers know of it."""

_NOBODY: Final[Named] = {}

DEPTH: Final = 2.0
"""Crawls of a host that may come at once: in any window of w seconds there are at most
2 + w·rate."""

AT_ONCE: Final = 1.0
"""Crawls of everything that may come at once: slots do not fall on a window's bounds."""

FILL_SECONDS: Final = 1.0
"""A pacer gives up a slot that it could not fill for so long."""

HAND_SECONDS: Final = 0.5
"""Filling, and handing requests to the producer, may take it so long more."""

MARGIN_SECONDS: Final = 1.0
"""For the way to the broker. Where the machine has so much else to do that the verification's own
messages take longer, that counts as standing still (`Sender.slow`)."""

LATE_SECONDS: Final = FILL_SECONDS + HAND_SECONDS + MARGIN_SECONDS
"""After its slot the broker has a request within this, if nothing is down."""

EARLY_SECONDS: Final = 0.01
"""The broker's times are in milliseconds."""


def budget(ledger: Ledger, changes: Sequence[tuple[float, float]], until: float) -> Finding:
    """No window, of whatever length, holds more slots than the budget.

    Args:
        ledger: of the run.
        changes: when the budget was set (Unix seconds), and to how many crawls per second.
        until: Unix seconds at which the budget was taken away.
    """
    begin = changes[0][0]
    allowed = _budget_of(changes)
    slots = np.sort([asked.request.requested_at for asked in ledger.requests]) - begin
    room = allowed.most_until(slots)
    lowered = [
        seconds_until_reached(slots + begin, at, rate, before)
        for (_, before), (at, rate) in itertools.pairwise(changes)
        if rate < before
    ]
    return Finding.of(
        "budget",
        "crawls keep to the budget in every second, by their slots",
        _seconds(overdrawn(slots, room, room, AT_ONCE)),
        looked_at=len(slots),
        crawls=len(slots),
        share_of_budget=round(len(slots) / max(allowed.integral(until - begin), 1.0), 4),
        slowest_decrease_seconds=round(max((late or 0.0 for late in lowered), default=0.0), 2),
    )


def budget_by_arrival(
    ledger: Ledger, changes: Sequence[tuple[float, float]], downtimes: Downtimes
) -> Finding:
    """No window holds more requests, by when the broker had them, than the budget and its delay.

    Args:
        ledger: of the run.
        changes: of the budget, as in `budget`.
        downtimes: in which requests may have been held up.
    """
    begin = changes[0][0]
    allowed = _budget_of(changes)
    on_time = [asked for asked in ledger.requests if not _was_held_up(asked, downtimes)]
    came = np.sort([asked.written_at for asked in on_time]) - begin
    until, since = allowed.most_until(came), allowed.most_until(came - LATE_SECONDS)
    return Finding.of(
        "budget by arrival",
        "crawls keep to the budget in every second, by when the broker had them",
        _seconds(overdrawn(came, until, since, AT_ONCE)),
        looked_at=len(came),
        held_up=len(ledger.requests) - len(on_time),
    )


def filled_in_time(
    ledger: Ledger, downtimes: Downtimes, away: Downtimes = (), since: float = -math.inf
) -> Finding:
    """The broker has each request soon after its slot, and never before it.

    Args:
        ledger: of the run.
        downtimes: in which requests may have been held up.
        away: those of them in which the broker was down: what the producer has by then is with the
            broker once it is back, however long that takes.
        since: Unix seconds; slots of before are left out, as a system that has just started may
            have something to compile yet.
    """
    most = LATE_SECONDS + ledger.settings.kafka_session_timeout_seconds
    judged = [asked for asked in ledger.requests if asked.request.requested_at >= since]
    lateness = np.array([asked.written_at - asked.request.requested_at for asked in judged])

    def offenders() -> Iterator[str]:
        for asked, late in zip(judged, lateness.tolist(), strict=True):
            slot = asked.request.requested_at
            excused = down_within(downtimes, slot, asked.written_at) if late > 0 else 0.0
            waited = late - down_within(away, slot, asked.written_at) if late > most else 0.0
            if late < -EARLY_SECONDS or late - excused > LATE_SECONDS or waited > most:
                yield f"{asked.request.url}: slot {slot:.3f}, with the broker {late:.3f} s after it"

    return Finding.of(
        "filled in time",
        f"requests are with the broker within {LATE_SECONDS} s of their slots, and within "
        f"{most} s while the broker is there",
        offenders(),
        looked_at=len(judged),
        p50_seconds=_quantile(lateness, 0.5),
        p99_seconds=_quantile(lateness, 0.99),
        max_seconds=_quantile(lateness, 1.0),
    )


def hosts(ledger: Ledger, limits: Mapping[str, float]) -> Finding:
    """No host has more slots than 2 + w·rate in any window of w seconds.

    Args:
        ledger: of the run.
        limits: crawls per second by host, the same all the time.
    """
    times = _by_host((asked.request.host, asked.request.requested_at) for asked in ledger.requests)
    return Finding.of(
        "host limits",
        "no host is over its limit in any window, by the slots",
        _hosts_over(times, limits, 0.0),
        looked_at=sum(map(len, times.values())),
        hosts=len(times),
    )


def hosts_by_arrival(ledger: Ledger, limits: Mapping[str, float], downtimes: Downtimes) -> Finding:
    """As `hosts`, by when the broker had the requests.

    Args:
        ledger: of the run.
        limits: crawls per second by host.
        downtimes: in which requests may have been held up.
    """
    times = _by_host(
        (asked.request.host, asked.written_at)
        for asked in ledger.requests
        if not _was_held_up(asked, downtimes)
    )
    return Finding.of(
        "host limits by arrival",
        "no host is over its limit in any window, by when the broker had the requests",
        _hosts_over(times, limits, LATE_SECONDS),
        looked_at=sum(map(len, times.values())),
        hosts=len(times),
    )


def groups(ledger: Ledger, limits: Mapping[str, float], named: Named = _NOBODY) -> Finding:
    """All hosts of a group have no more slots than 1 + n + w·rate in any window of w seconds, in n
    shards: each may have kept one slot of the group's that it did not use.

    Args:
        ledger: of the run.
        limits: crawls per second by group, the same all the time.
        named: hosts that are of groups other than domains.
    """
    times, parts = _by_group(ledger, limits, named)
    return Finding.of(
        "group limits",
        "no group of hosts is over its limit in any window, over all shards, by the slots",
        _groups_over(times, parts, limits, 0.0),
        looked_at=sum(map(len, times.values())),
        groups=len(limits),
    )


def groups_by_arrival(
    ledger: Ledger, limits: Mapping[str, float], downtimes: Downtimes, named: Named = _NOBODY
) -> Finding:
    """As `groups`, by when the broker had the requests.

    Args:
        ledger: of the run.
        limits: crawls per second by group.
        downtimes: in which requests may have been held up.
        named: as in `groups`.
    """
    on_time = replace(
        ledger, requests=[a for a in ledger.requests if not _was_held_up(a, downtimes)]
    )
    times, parts = _by_group(on_time, limits, named, by_arrival=True)
    return Finding.of(
        "group limits by arrival",
        "no group of hosts is over its limit in any window, by when the broker had the requests",
        _groups_over(times, parts, limits, LATE_SECONDS),
        looked_at=sum(map(len, times.values())),
        groups=len(limits),
    )


def _by_group(
    ledger: Ledger, limits: Mapping[str, float], named: Named, *, by_arrival: bool = False
) -> tuple[dict[str, NDArray[np.float64]], dict[str, int]]:
    """When the hosts of each group were crawled, and in how many shards they are."""
    times: dict[str, list[float]] = defaultdict(list)
    shards: dict[str, set[int]] = defaultdict(set)
    for asked in ledger.requests:
        name, since = named.get(asked.request.host, ("", math.inf))
        # Of nested domains the innermost one's limit holds, and that of the name besides.
        domain = "." + asked.request.host.partition(":")[0]
        of_host = {max((g for g in limits if domain.endswith(f".{g}")), key=len, default="")}
        of_host |= {name} if asked.request.requested_at >= since else set()
        for group in of_host & limits.keys():
            times[group].append(asked.written_at if by_arrival else asked.request.requested_at)
            shards[group].add(asked.partition)
    return (
        {group: np.sort(of_group) for group, of_group in times.items()},
        {group: len(of_group) for group, of_group in shards.items()},
    )


def _groups_over(
    times: Mapping[str, NDArray[np.float64]],
    parts: Mapping[str, int],
    limits: Mapping[str, float],
    late: float,
) -> Iterator[str]:
    for group, of_group in times.items():
        rate = limits[group]
        room = rate * (of_group - of_group[0])
        if over := overdrawn(of_group, room, room - rate * late, 1.0 + parts[group]):
            worst = max(excess for _, excess in over)
            yield f"{group}: {worst:.3f} crawls more than {rate}/s allows"


def _budget_of(changes: Sequence[tuple[float, float]]) -> Budget:
    begin = changes[0][0]
    return Budget(
        np.array([time - begin for time, _ in changes]), np.array([rate for _, rate in changes])
    )


def _was_held_up(asked: Asked, downtimes: Downtimes) -> bool:
    slot, came = asked.request.requested_at, asked.written_at
    return came - slot > LATE_SECONDS and down_within(downtimes, slot, came) > 0.0


def _seconds(over: Sequence[tuple[float, float]]) -> list[str]:
    """Crawls that are too many, second by second."""
    counts = Counter(int(np.floor(time)) for time, _ in over)
    return [f"second {second}: {count} too many" for second, count in sorted(counts.items())]


def _by_host(crawls: Iterator[tuple[str, float]]) -> dict[str, NDArray[np.float64]]:
    times: dict[str, list[float]] = defaultdict(list)
    for host, at in crawls:
        times[host].append(at)
    return {host: np.sort(of_host) for host, of_host in times.items()}


def _hosts_over(
    times: Mapping[str, NDArray[np.float64]], limits: Mapping[str, float], late: float
) -> Iterator[str]:
    for host, of_host in times.items():
        room = limits[host] * (of_host - of_host[0])
        over = overdrawn(of_host, room, room - limits[host] * late, DEPTH)
        if over:
            worst = max(excess for _, excess in over)
            yield f"{host}: {worst:.3f} crawls more than {limits[host]}/s allows"


def _quantile(values: NDArray[np.float64], part: float) -> float | None:
    return round(float(np.quantile(values, part)), 3) if values.size else None


PASSED_ON_SECONDS: Final = 6.0
"""News that came on another partition of the host's family is passed on by an estimator, which may
have to load the shard first that was just split; wall seconds more."""


def blocked_hosts(ledger: Ledger, downtimes: Downtimes) -> Finding:
    """A host that asked for a pause is not crawled until it is over, whatever restarts.

    Args:
        ledger: of the run.
        downtimes: of the faults; while something is down, news of a pause may be on its way.
    """
    asked_for = pauses(ledger)

    def delays() -> Iterator[tuple[float, str]]:
        for asked in ledger.requests:
            at = asked.request.requested_at
            for told, until, partition in asked_for.get(asked.request.host, ()):
                if at >= until or at <= told:
                    continue
                unheard = at - told - down_within(downtimes, told, at)
                if partition != asked.partition:
                    unheard -= PASSED_ON_SECONDS
                yield (
                    unheard,
                    f"{asked.request.host}: crawled at {at:.3f}, {at - told:.2f} s after it "
                    f"asked for a pause until {until:.3f}",
                )

    found = Finding.of_delays(
        "pauses",
        "hosts that asked for a pause are left alone",
        delays(),
        NEWS_SECONDS,
        "slowest_news_seconds",
    )
    return replace(found, looked_at=sum(map(len, asked_for.values())))
