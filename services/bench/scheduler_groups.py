"""The scheduler's core with limits of groups of hosts: that they hold, and what they cost."""

import statistics
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.bench.scheduled_pages import ORIGIN, Population, make_filled_shard
from services.bench.scheduler_driver import Driver
from services.bench.timing import thread_seconds
from shared.contracts.messages import Allotment, GroupShares
from shared.contracts.shares import DefaultShares
from shared.pacing.groups import NO_LIMITS, Limits

_PAGES: Final = 500_000
_HOSTS: Final = 20_000
_GROUPED: Final = 10_000
_GROUPS: Final = 100
_RATE: Final = 1_000.0
"""Crawls per second: of one shard of many."""

_OF_THEIR_SHARE: Final = 0.3
"""A group takes so much of an equal part of the budget."""

_TICK_SECONDS: Final = 0.1
_SETTLING_SECONDS: Final = 30.0
_SECONDS: Final = 10.0
_ROUNDS: Final = 5
_MANY_HOSTS: Final = 300_000


def run(seed: int) -> dict[str, Any]:
    """The same pages with limits of groups and without any, in turns.

    Returns:
        `over_limit_groups` in some window; `used_of_limits`, crawls of the groups as a share of
        what their limits allow; processor time of picking with the limits, and `ratio`, that over
        what it takes without any (the middle one of some rounds); and `regrouping` (`_regrouping`).
    """
    limited, free = _Loaded(seed, has_groups=True), _Loaded(seed, has_groups=False)
    for loaded in (limited, free):
        loaded.pass_time(_SETTLING_SECONDS)
    ratios, shares = [], []
    limited.crawled.clear()
    for _ in range(_ROUNDS):
        with_groups, without = (one.pass_time(_SECONDS) for one in (limited, free))
        ratios.append(with_groups / without)
        shares.append(with_groups / _SECONDS)
    crawls = [np.sort(np.concatenate(of_group)) for of_group in limited.by_group()]
    allowed = _GROUPS * limited.limit * _SECONDS * _ROUNDS
    return {
        "pages": _PAGES,
        "hosts": _GROUPED,
        "groups": _GROUPS,
        "limit": limited.limit,
        "over_limit_groups": sum(_is_over(times, limited.limit) for times in crawls),
        "used_of_limits": round(sum(times.size for times in crawls) / allowed, 4),
        "select_share": round(statistics.median(shares), 4),
        "ratio": round(statistics.median(ratios), 3),
        "ratios": [round(ratio, 3) for ratio in ratios],
        "regrouping": _regrouping(seed),
    }


def _regrouping(seed: int) -> dict[str, Any]:
    """How long a shard of many hosts keeps its thread when other groups have limits: one more
    domain, `domain_ms`; all that outcomes name, a group for each host, `default_ms`; and none any
    more, `none_ms`. Processor time, the middle one of some rounds."""
    shard, _ = make_filled_shard(Population(_MANY_HOSTS, _RATE, _RATE / 2, _MANY_HOSTS, seed))
    for host in range(_MANY_HOSTS):
        shard.groups.name(host, f"address-{host}")
    shard.prepare(ORIGIN)
    whole = [Allotment(0, 1.0)]
    names = [shard.hosts.names[host] for host in range(2)]
    one, two = (
        Limits(tuple(GroupShares(name, 1.0, ORIGIN, 0.0, whole) for name in names[:count]))
        for count in (1, 2)
    )
    steps = {
        "domain_ms": two,
        "default_ms": Limits(two.groups, DefaultShares(1.0, ORIGIN, 0.0, 1, [])),
        "none_ms": NO_LIMITS,
    }
    spent: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(_ROUNDS):
        shard.groups.follow(one, _RATE, ORIGIN)
        for name, limits in steps.items():
            began = thread_seconds()
            shard.groups.follow(limits, _RATE, ORIGIN)
            spent[name].append(1e3 * (thread_seconds() - began))
    return {
        "hosts": _MANY_HOSTS,
        **{name: round(statistics.median(times), 1) for name, times in spent.items()},
    }


class _Loaded:
    """A shard, half of whose hosts are in groups, with limits or without."""

    def __init__(self, seed: int, *, has_groups: bool) -> None:
        population = Population(_PAGES, _RATE, _RATE / 2, _HOSTS, seed)
        shard, _ = make_filled_shard(population)
        self.limit = _OF_THEIR_SHARE * _RATE * _GROUPED / _HOSTS / _GROUPS
        self._driver = Driver(shard, seed)
        self._limits = NO_LIMITS
        self.crawled: list[tuple[NDArray[np.int32], NDArray[np.float64]]] = []
        """Hosts and times of the crawls of each tick."""
        for host in range(_GROUPED):
            shard.groups.name(host, f"group-{host % _GROUPS}")
        if has_groups:
            # Limits are not set all at once: slots of different groups come at different times.
            self._limits = Limits(
                tuple(
                    GroupShares(f"group-{n}", self.limit, ORIGIN - n, 0.37 * n, [Allotment(0, 1.0)])
                    for n in range(_GROUPS)
                )
            )

    def pass_time(self, seconds: float) -> float:
        """Let time pass; the processor time of picking."""
        driver, shard = self._driver, self._driver.shard
        driver.forget()
        for _ in range(round(seconds / _TICK_SECONDS)):
            shard.groups.follow(self._limits, _RATE, driver.now)
            picks = driver.tick(_TICK_SECONDS, _RATE, _RATE / 2)
            picks = picks[picks["row"] >= 0]
            self.crawled.append((shard.pages["host"][picks["row"]], picks["time"]))
        return driver.select_cpu

    def by_group(self) -> list[list[NDArray[np.float64]]]:
        """Times of the crawls of each group, tick by tick."""
        hosts = np.concatenate([of_tick for of_tick, _ in self.crawled])
        times = np.concatenate([of_tick for _, of_tick in self.crawled])
        groups = np.where(hosts < _GROUPED, hosts % _GROUPS, -1)
        return [[times[groups == group]] for group in range(_GROUPS)]


def _is_over(times: NDArray[np.float64], limit: float) -> bool:
    """Whether some window of w seconds has more than 2 + w·limit."""
    over = np.arange(times.size) - limit * (times - times[0])
    return bool((over - np.minimum.accumulate(over)).max() > 1.0 + 1e-6)
