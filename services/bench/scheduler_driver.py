"""Lets time pass for a shard of synthetic pages, and counts what it costs."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.bench.scheduled_pages import ORIGIN
from services.bench.timing import thread_seconds
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.contracts.request_ids import microseconds
from shared.policy.compiled import compiled
from shared.rules.page_events import UNCHANGED

CRAWLS_PER_SECOND: Final = 10_000.0
SIGNALS_PER_SECOND: Final = 5_000.0
_LATENCY_SECONDS: Final = 1.0
"""From a request to its outcome."""

_GROUP: Final = 64
"""Pages whose rates of signals are summed: the pages' own sums would take memory of their own."""


@compiled
def _sum_groups(pages: Rows) -> NDArray[np.float64]:
    """Σγ up to the end of each group of pages."""
    sums = np.zeros((pages.size + _GROUP - 1) // _GROUP)
    for row in range(pages.size):
        sums[row // _GROUP] += pages[row].gamma
    return np.cumsum(sums)


@compiled
def _rows_at(pages: Rows, sums: NDArray[np.float64], at: NDArray[np.float64]) -> NDArray[np.int32]:
    """The pages that places in Σγ fall on."""
    rows = np.empty(at.size, np.int32)
    for index in range(at.size):
        group = np.searchsorted(sums, at[index])
        left = at[index] - (sums[group - 1] if group > 0 else 0.0)
        first = group * _GROUP
        rows[index] = first
        for row in range(first, min(first + _GROUP, pages.size)):
            if pages[row].gamma > 0.0:
                rows[index] = row
                left -= pages[row].gamma
                if left <= 0.0:
                    break
    return rows


class Driver:
    """Lets time pass for a shard: signals arrive, pages are picked, outcomes come back."""

    def __init__(self, shard: Shard, seed: int = 1) -> None:
        self.shard = shard
        self.now = ORIGIN
        self._random = np.random.default_rng(seed)
        self._sums = _sum_groups(shard.pages[: shard.used])
        self._waiting: list[tuple[float, Rows]] = []
        self.crawls = 0
        self.empty = 0
        self.select_cpu = 0.0
        self.placing_cpu = 0.0
        """Part of `event_cpu`: pages that something happened to are placed anew."""
        self._time_placing()
        self.event_cpu = 0.0
        self.slowest = 0.0
        self.unknown = 0

    def forget(self) -> None:
        """Begin to measure anew."""
        self.crawls = self.empty = 0
        self.select_cpu = self.event_cpu = self.placing_cpu = self.slowest = 0.0

    def _time_placing(self) -> None:
        selector = self.shard.selector
        touch = selector.touch

        def timed(rows: NDArray[np.int32], *, reweigh: bool = False) -> None:
            started = thread_seconds()
            touch(rows, reweigh=reweigh)
            self.placing_cpu += thread_seconds() - started

        selector.touch = timed  # type: ignore[method-assign]

    def _draw_signals(self, count: int) -> NDArray[np.int64]:
        pages = self.shard.pages[: self.shard.used]
        at = self._random.random(count) * self._sums[-1]
        return self.shard.page_ids_of(_rows_at(pages, self._sums, at).astype(np.int64))

    def events(self, seconds: float, signals_per_second: float) -> None:
        """Signals of a tick, and outcomes that are due in it."""
        ids = self._draw_signals(round(signals_per_second * seconds))
        times = self.now + np.sort(self._random.random(ids.size)) * seconds
        sources = ["feed"] * ids.size
        due = [picks for at, picks in self._waiting if at <= self.now]
        self._waiting = [(at, picks) for at, picks in self._waiting if at > self.now]
        outcomes = [
            Outcomes(
                self.shard.page_ids_of(picks["row"]),
                picks["time"] + _LATENCY_SECONDS / 2,
                np.full(picks.size, UNCHANGED, np.int8),
                microseconds(picks["time"]),
                np.zeros(picks.size, np.uint32),
            )
            for picks in due
        ]
        started = thread_seconds()
        for answered in outcomes:
            self.shard.outcomes(answered)
        if ids.size:
            self.unknown += self.shard.signals(ids, times, sources)
        self.event_cpu += thread_seconds() - started

    def pick(self, slots: NDArray[np.float64], rate: float) -> Rows:
        """Fill slots; the picks."""
        started = thread_seconds()
        picks = self.shard.selector.select(slots, rate, 0.0)
        self.select_cpu += thread_seconds() - started
        crawls = picks[picks["row"] >= 0]
        self._waiting.append((float(slots[-1]) + _LATENCY_SECONDS, crawls))
        self.crawls += crawls.size
        self.empty += picks.size - crawls.size
        return picks

    def tick(
        self,
        seconds: float,
        rate: float = CRAWLS_PER_SECOND,
        signals_per_second: float = SIGNALS_PER_SECOND,
    ) -> Rows:
        """Events and slots of one tick."""
        before = self.select_cpu + self.event_cpu
        self.events(seconds, signals_per_second)
        self.now += seconds
        count = max(round(rate * seconds), 1)
        slots = self.now - seconds + np.arange(1, count + 1, dtype=np.float64) / rate
        picks = self.pick(slots, rate)
        self.slowest = max(self.slowest, self.select_cpu + self.event_cpu - before)
        return picks
