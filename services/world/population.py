"""A generated population: heavy-tailed hosts, weights and rates; honest and noisy signals.

Shapes: host sizes follow Zipf's law; importance is Pareto; change rates are lognormal around a
rate of the host's own, so that a host says something about its pages; recall is Beta around the
source's mean; false signals come at a rate proportional to the page's changes. Sources differ as
real ones do: web pings come at once, sitemaps at the next midnight, lastmod headers tell of
trivial changes too, and some hosts send nothing.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.world.events import Changes, Signals
from services.world.pages import WorldPages
from services.world.sites import SiteHosts, SiteUrls
from shared.units import SECONDS_PER_DAY

SOURCES = ["webping", "lastmod", "sitemap"]

PAGES_PER_HOST = 40
"""Mean size of a host; the largest has thousands of times the smallest."""

MEDIAN_CHANGE_RATE = 0.02
"""Changes a day of the median page."""

NEW_SHARE = 0.02
"""Pages that are known at day 0 but were never crawled."""

_SILENT_HOST_SHARE = 0.3
_RECALL = np.array([[9.0, 1.5], [6.0, 2.0], [7.0, 3.0]])
"""Beta parameters of each source's recall."""
_FALSE_SIGNALS = np.array([0.05, 1.5, 0.4])
"""False signals of each source, as a share of the page's changes."""
_PING_DELAY_DAYS = 60.0 / SECONDS_PER_DAY


@dataclass(frozen=True, slots=True)
class Population:
    """Pages and the parameters that govern them; rates per day."""

    pages: WorldPages
    change_rate: NDArray[np.float64]
    """Δ."""
    source: NDArray[np.int64]
    """Number in `SOURCES`, or −1: sends no signals."""
    recall: NDArray[np.float64]
    """λ: probability that a change sends a signal."""
    false_signal_rate: NDArray[np.float64]
    """ν."""


def generate_population(count: int, seed: int) -> Population:
    """Make a population.

    Args:
        count: how many pages, at least 1.
        seed: the same seed gives the same population.
    """
    rng = np.random.default_rng([seed, 1])
    hosts = max(count // PAGES_PER_HOST, 1)
    weights = 1.0 / np.arange(1, hosts + 1)
    host = np.sort(rng.choice(hosts, size=count, p=weights / weights.sum()))
    within = np.arange(count) - np.searchsorted(host, host)
    urls = SiteUrls(host.astype(np.int32), within.astype(np.int32))
    importance = np.minimum(rng.pareto(1.2, count) + 1.0, 1000.0)
    host_rate = MEDIAN_CHANGE_RATE * rng.lognormal(0.0, 1.0, hosts)
    change_rate = np.clip(host_rate[host] * rng.lognormal(0.0, 1.0, count), 1e-4, 50.0)
    host_source = rng.choice(len(SOURCES), hosts)
    host_source[rng.random(hosts) < _SILENT_HOST_SHARE] = -1
    source = host_source[host]
    sends = source >= 0
    beta = _RECALL[np.maximum(source, 0)]
    recall = np.where(sends, rng.beta(beta[:, 0], beta[:, 1]), 0.0)
    noise = _FALSE_SIGNALS[np.maximum(source, 0)] * rng.lognormal(0.0, 0.7, count)
    return Population(
        pages=WorldPages(
            urls,
            SiteHosts(host.astype(np.int32)),
            urls.page_ids(),
            importance,
            max_age_days=np.full(count, np.inf),
            held=rng.random(count) >= NEW_SHARE,
        ),
        change_rate=change_rate,
        source=source.astype(np.int64),
        recall=recall,
        false_signal_rate=np.where(sends, noise * change_rate, 0.0),
    )


class GeneratedStream:
    """The events of a population without end, made a stretch of time at a time."""

    def __init__(
        self, population: Population, seed: int, stretch_days: float | None = None
    ) -> None:
        self._population = population
        self._rng = np.random.default_rng([seed, 2])
        self._change_weights = np.cumsum(population.change_rate)
        self._false_weights = np.cumsum(population.false_signal_rate)
        events_a_day = self._change_weights[-1] + self._false_weights[-1]
        self._stretch = stretch_days or min(max(50_000 / events_a_day, 0.01), 10.0)
        self._made_until = 0.0
        self._changes = Changes(np.empty(0), np.empty(0, np.int64))
        self._signals = Signals(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))

    @property
    def source_names(self) -> list[str]:
        """Names of the signal sources."""
        return SOURCES

    def changes(self, until: float) -> Changes:
        """The changes since the last call, up to and with `until`."""
        self._make(until)
        cut = int(np.searchsorted(self._changes.days, until, side="right"))
        taken = Changes(self._changes.days[:cut], self._changes.pages[:cut])
        self._changes = Changes(self._changes.days[cut:], self._changes.pages[cut:])
        return taken

    def signals(self, until: float) -> Signals:
        """The signals since the last call, up to and with `until`."""
        self._make(until)
        kept = self._signals
        cut = int(np.searchsorted(kept.days, until, side="right"))
        taken = Signals(kept.days[:cut], kept.pages[:cut], kept.sources[:cut])
        self._signals = Signals(kept.days[cut:], kept.pages[cut:], kept.sources[cut:])
        return taken

    def _make(self, until: float) -> None:
        while self._made_until < until:
            changes = Changes(*self._poisson(self._change_weights))
            false = self._poisson(self._false_weights)
            announced = self._rng.random(len(changes)) < self._population.recall[changes.pages]
            true = changes.days[announced], changes.pages[announced]
            self._signals = Signals.merged([self._signals, self._sent(*true), self._sent(*false)])
            self._changes = Changes(
                np.concatenate([self._changes.days, changes.days]),
                np.concatenate([self._changes.pages, changes.pages]),
            )
            self._made_until += self._stretch

    def _poisson(
        self, weights: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Events of the next stretch: of all pages together, then dealt out by their rates."""
        total = weights[-1]
        count = self._rng.poisson(total * self._stretch)
        days = np.sort(self._made_until + self._stretch * self._rng.random(count))
        pages = np.searchsorted(weights, total * self._rng.random(count), side="right")
        return days, np.minimum(pages, weights.size - 1).astype(np.int64)

    def _sent(self, days: NDArray[np.float64], pages: NDArray[np.int64]) -> Signals:
        source = self._population.source[pages]
        delayed = days + self._rng.exponential(_PING_DELAY_DAYS, days.size)
        sent = np.where(source == SOURCES.index("sitemap"), np.floor(days) + 1.0, delayed)
        return Signals.merged([Signals(sent, pages, source)])
