"""How the hosts of a simulated web behave: fast or slow, dead, or in trouble now and then."""

import numpy as np
from numpy.typing import NDArray

from services.world.plan import FleetPlan

_HOURS = 24.0


class SimulatedHosts:
    """What each host is like, and which pages are never answered: drawn once, by the seed.

    Pages go by their numbers; one that the world does not know (−1) is at a host like most.
    """

    def __init__(self, plan: FleetPlan, hosts: NDArray[np.int64], seed: int) -> None:
        """Draw.

        Args:
            plan: how they are to behave.
            hosts: number of the host of each page.
            seed: of the world.
        """
        rng = np.random.default_rng([seed, 4])
        count = int(hosts.max(initial=-1)) + 1
        self._plan = plan
        # The last one stands for the host of pages that are not known.
        self._hosts = np.append(hosts, count)
        self._latencies = plan.latency_seconds * np.exp(
            plan.latency_spread * np.append(rng.standard_normal(count), 0.0)
        )
        self._is_dead = np.append(rng.random(count) < plan.dead_hosts_share, False)
        self._phases = np.append(rng.random((2, count)), [[0.0], [0.0]], axis=1)
        self._is_silent = np.append(rng.random(hosts.size) < plan.silent_share, False)

    def latencies(self, pages: NDArray[np.int64]) -> NDArray[np.float64]:
        """Seconds of the wall that a crawl of each page takes."""
        return np.asarray(self._latencies[self._hosts[pages]], np.float64)

    def is_silent(self, pages: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which pages are never answered."""
        return np.asarray(self._is_silent[pages], np.bool_)

    def troubles(
        self, pages: NDArray[np.int64], day: float
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
        """Of pages at a time: whose hosts are dead, in a storm of errors, in a wave of 404s."""
        plan, hosts = self._plan, self._hosts[pages]
        storm = _is_on(day, plan.storm_share, plan.storm_hours, self._phases[0, hosts])
        wave = _is_on(day, plan.wave_share, plan.wave_hours, self._phases[1, hosts])
        return self._is_dead[hosts], storm, wave


def _is_on(
    day: float, share: float, hours: float, phases: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether something is on that comes again and again, and is on for a share of the time."""
    if share <= 0.0:
        return np.zeros(phases.size, np.bool_)
    period = hours / _HOURS / share
    return np.asarray((day / period + phases) % 1.0 < share)
