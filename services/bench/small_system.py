"""Ingester, estimator and scheduler of one shard, in memory and on a virtual clock.

The workers' own code without Kafka and PostgreSQL: what an hour of their life comes to, in
milliseconds, and always the same for the same events.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.estimator.application import ShardEffects, apply_records
from services.estimator.learning import learn, material_news
from services.estimator.refitting import Refits, merged, refit
from services.estimator.shard import Shard as LearningShard
from services.ingester.handler import make_sifter
from services.scheduler.flow.loading import shard_rules
from services.scheduler.flow.reader import TOPIC_ORDER, Reader
from services.scheduler.picking.calendar import make_shard
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlOutcome, PageSignal, PageUpdate
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    HOST_PARAMETERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
)
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import ManualClock, SystemClock
from shared.runtime.settings import Settings

_READ_MS: Final = 5_000
"""Signals that arrive within so long are read at once."""

_Records = dict[str, list[ConsumerRecord]]


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record of `signals` as the ingester reads it."""

    value: bytes
    timestamp: int
    """Milliseconds, stamped by the broker."""
    headers: tuple[tuple[str, bytes], ...] = ()


class SmallSystem:
    """All workers of one shard. Times are Unix seconds and never go back."""

    def __init__(
        self,
        settings: Settings,
        urls: Sequence[str],
        importance: NDArray[np.float64],
        crawls_per_second: float,
        origin: float,
    ) -> None:
        """Begin with copies of all pages, crawled at `origin`."""
        self._clock = ManualClock(origin)
        self._settings = settings
        self._rate = crawls_per_second
        self._sifter = make_sifter(settings, SystemClock())
        self._learning = LearningShard(0)
        self._shard = make_shard(0, shard_rules(settings, self._clock))
        self._refits = Refits(settings.prior_refit_days)
        self._apply(
            {
                PAGE_UPDATES.name: [
                    _record(PageUpdate("upsert", url, weight, None, origin, origin))
                    for url, weight in zip(urls, importance.tolist(), strict=True)
                ]
            }
        )

    def advance(self, now: float) -> None:
        """Let time pass."""
        self._clock.time = now

    def hear(self, arrivals: Sequence[Arrival]) -> list[PageSignal]:
        """Take signals, in the order of their arrival, through the ingester to the other two.

        Returns:
            what the ingester accepted.
        """
        accepted: list[PageSignal] = []
        # Read as they arrive: of a backlog more may come at once.
        for _, together in groupby(arrivals, lambda one: one.timestamp // _READ_MS):
            read = list(together)
            accepted += self._sifter.sift(read, read[-1].timestamp / 1000).accepted
        if accepted:
            self._apply({PAGE_SIGNALS.name: [_record(signal) for signal in accepted]})
        return accepted

    def pick(self, slots: NDArray[np.float64]) -> list[str]:
        """The page that the scheduler crawls at each slot; "" where there is none."""
        if not slots.size:
            return []
        picks = self._shard.selector.select(slots, self._rate, 0.0)
        rows = picks["row"].tolist()
        return [self._shard.url_of(row) if row >= 0 else "" for row in rows]

    def answer(self, outcomes: Sequence[CrawlOutcome]) -> None:
        """Tell both what crawls found, and let the estimator learn from it."""
        self._apply({CRAWL_OUTCOMES.name: [_record(outcome) for outcome in outcomes]})

    def _apply(self, records: _Records) -> None:
        now = self._clock.time
        acceptance = Acceptance(now, now, record_times_count=False)
        self._tell_scheduler(records, acceptance)
        done = apply_records(self._learning, records, acceptance, 0.0)
        learn(done)
        effects = [done]
        if self._refits.are_due([self._learning], now):
            refitted = refit([self._learning], self._settings.material_change)
            effects = merged({0: done}, [self._learning], refitted)
            # No wall time is said to have passed: when a refit is due depends on events alone.
            self._refits.noted([self._learning], now, 0.0)
        for effect in effects:
            self._announce(effect, acceptance)

    def _announce(self, effect: ShardEffects, acceptance: Acceptance) -> None:
        material = self._settings.material_change
        news = material_news(effect, material, acceptance.now)
        self._tell_scheduler(
            {
                HOST_PARAMETERS.name: [_raw(value) for _, value in news.hosts],
                PAGE_PARAMETERS.name: [_raw(value) for _, value in news.pages],
            },
            acceptance,
        )

    def _tell_scheduler(self, records: _Records, acceptance: Acceptance) -> None:
        reader = Reader(acceptance)
        for topic in TOPIC_ORDER:
            if records.get(topic):
                reader.apply(self._shard, topic, records[topic])
        self._shard.refreshes.go_on()


def _record(message: object) -> ConsumerRecord:
    return _raw(encode(message))


def _raw(value: bytes) -> ConsumerRecord:
    return ConsumerRecord("", 0, 0, 0, 0, None, value, None, -1, -1, ())
