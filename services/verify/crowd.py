"""The web of a verification: a generated population whose days pass in seconds, and its limits."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.world.events import Changes, Signals
from services.world.pages import WorldPages
from services.world.population import GeneratedStream, generate_population
from shared.units import SECONDS_PER_DAY

DAYS_PER_SECOND: Final = 0.25
"""The population lives so fast; the system's clock is the real one."""

_SPEED: Final = DAYS_PER_SECOND * SECONDS_PER_DAY

LIMIT_OVER_NEED: Final = 12.0
"""A host's limit, as a multiple of the rate at which the bound on its pages' age wants them."""

TOGETHER_OVER_NEED: Final = 6.0
"""The same of the limit that the hosts at one address share."""

ADDRESS: Final = "203.0.113.7"
AT_ADDRESS: Final = 3
"""Hosts there."""

MOST_OPEN: Final = 2
"""Requests that may be open at once, of the one host that has such a bound."""

LEAST_LIMIT: Final = 1.0
MOST_LIMIT: Final = 80.0


class FastStream:
    """A generated stream on the real clock: its days pass in seconds. Times are real days."""

    def __init__(self, stream: GeneratedStream) -> None:
        self._stream = stream

    @property
    def source_names(self) -> list[str]:
        """Names of the signal sources."""
        return self._stream.source_names

    def changes(self, until: float) -> Changes:
        """The changes since the last call, up to and with `until`."""
        found = self._stream.changes(until * _SPEED)
        return Changes(found.days / _SPEED, found.pages)

    def signals(self, until: float) -> Signals:
        """The signals since the last call, up to and with `until`."""
        found = self._stream.signals(until * _SPEED)
        return Signals(found.days / _SPEED, found.pages, found.sources)


@dataclass(frozen=True, slots=True)
class Crowd:
    """Pages, their events, and how often their hosts may be crawled."""

    pages: WorldPages
    stream: FastStream
    limits: dict[str, float]
    """Crawls per second, by host."""
    group_limits: dict[str, float]
    """The same by address, of all hosts there."""
    addresses: dict[str, str]
    """Of the hosts of which crawlers say where they are."""
    open_bounds: dict[str, int]
    """Host → requests that may be open at once."""


def make_crowd(pages: int, seed: int, max_age_seconds: float) -> Crowd:
    """A population whose hosts are limited, but not so much that old pages could not be crawled."""
    population = generate_population(pages, seed)
    hosts, counts = np.unique(population.pages.hosts, return_counts=True)
    need: NDArray[np.float64] = counts / max_age_seconds
    limits = np.clip(LIMIT_OVER_NEED * need, LEAST_LIMIT, MOST_LIMIT).round(3)
    # Of middle size: they are crawled often, and nobody waits for them.
    first = max(hosts.size // 2 - AT_ADDRESS, 0)
    middle = np.argsort(need, kind="stable")[first : first + AT_ADDRESS + 1]
    together, narrow = hosts[middle[:-1]].tolist(), str(hosts[middle[-1]])
    shared = float(np.clip(TOGETHER_OVER_NEED * need[middle[:-1]].sum(), LEAST_LIMIT, MOST_LIMIT))
    return Crowd(
        population.pages,
        FastStream(GeneratedStream(population, seed)),
        dict(zip(hosts.tolist(), limits.tolist(), strict=True)),
        {ADDRESS: round(shared, 3)},
        dict.fromkeys(together, ADDRESS),
        {narrow: MOST_OPEN},
    )
