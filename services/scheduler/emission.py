"""From slots to crawl requests on Kafka."""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from aiokafka import AIOKafkaProducer
from numpy.typing import NDArray

from services.scheduler import metrics
from services.scheduler.in_flight import microseconds, request_id_of
from services.scheduler.pages import Rows
from services.scheduler.priority import BY_VALUE, REASONS
from services.scheduler.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlRequest
from shared.contracts.topics import CRAWL_REQUESTS
from shared.pacing.slots import SlotPlan
from shared.runtime import metrics as common_metrics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings

_MOST_UNACKNOWLEDGED: Final = 2_000
"""Batches on their way to the broker before filling slots waits for it."""


_REQUESTS_BY_TIER: Final = [metrics.REQUESTS.labels(reason) for reason in REASONS]


@dataclass(frozen=True, slots=True)
class Emission:
    """What a shard asks for in one tick."""

    shard: Shard
    picks: Rows
    messages: list[tuple[bytes, bytes]]
    """Key and value."""


class SlotFiller:
    """Fills slots with pages, and writes the requests. Runs in the shards' thread."""

    def __init__(self, settings: Settings, shards: Mapping[int, Shard]) -> None:
        self._shards = shards
        self._work_conserving = settings.work_conserving

    def fill(
        self,
        times: NDArray[np.float64],
        owners: NDArray[np.int32],
        plan: SlotPlan,
    ) -> list[Emission]:
        """Pick a page for each slot of a shard that is ready.

        Args:
            times: of the slots, rising.
            owners: shard of each.
            plan: that holds at the end; says λ₀, the rate and the shares.
        """
        order = np.argsort(owners, kind="stable")
        times, owners = times[order], owners[order]
        present, starts = np.unique(owners, return_index=True)
        emissions = []
        for number, given in zip(present, np.split(times, starts[1:]), strict=True):
            shard = self._shards.get(int(number))
            if shard is None or not shard.is_caught_up:
                continue
            slots = given[given > shard.filled_until]
            if slots.size:
                emissions.append(self._fill_shard(shard, slots, plan))
        return emissions

    def _fill_shard(self, shard: Shard, slots: NDArray[np.float64], plan: SlotPlan) -> Emission:
        least = 0.0 if self._work_conserving else plan.multiplier
        rate = plan.slots_per_second * plan.share_of(shard.number)
        picks = shard.selector.select(slots, rate, least)
        shard.filled_until = float(slots[-1])
        crawls = picks[picks["row"] >= 0]
        metrics.EMPTY_SLOTS.inc(picks.size - crawls.size)
        for counter, count in zip(
            _REQUESTS_BY_TIER, np.bincount(crawls["tier"], minlength=len(REASONS)), strict=True
        ):
            if count:
                counter.inc(int(count))
        shard.note_crawls(crawls)
        return Emission(shard, crawls, write_requests(shard, crawls, plan.multiplier))


def host_multipliers(hosts: Rows, multiplier: float) -> NDArray[np.float64]:
    """λ_i as observed: what the pages of a host at its limit are worth above λ₀; else 0."""
    above = np.maximum(hosts["typical_value"] - multiplier, 0.0)
    return np.where(hosts["held_back"] > multiplier, above, 0.0)


def _thresholds(shard: Shard, crawls: Rows, multiplier: float) -> NDArray[np.float64]:
    """λ₀ + λ_i of picks; a typical value lags behind, so never above what was picked by value."""
    hosts = shard.hosts.rows[shard.pages["host"][crawls["row"]]]
    thresholds = multiplier + host_multipliers(hosts, multiplier)
    reached = np.maximum(np.minimum(thresholds, crawls["value"]), multiplier)
    return np.where(crawls["tier"] == BY_VALUE, reached, thresholds)


def write_requests(shard: Shard, crawls: Rows, multiplier: float) -> list[tuple[bytes, bytes]]:
    """The picks as records: key and value."""
    rows = crawls["row"]
    hosts, timeout = shard.hosts, shard.rules.selection.request_timeout
    columns = zip(
        shard.page_ids_of(rows).tolist(),
        shard.urls.get_many(rows),
        shard.pages["host"][rows].tolist(),
        crawls["time"].tolist(),
        crawls["value"].tolist(),
        _thresholds(shard, crawls, multiplier).tolist(),
        crawls["tier"].tolist(),
        strict=True,
    )
    return [
        (
            hosts.keys[host],
            encode(
                CrawlRequest(
                    request_id_of(shard.number, page_id, microseconds(time)),
                    page_id,
                    url,
                    hosts.names[host],
                    time,
                    time + timeout,
                    value,
                    threshold,
                    REASONS[tier],
                )
            ),
        )
        for page_id, url, host, time, value, threshold, tier in columns
    ]


def take_back(emission: Emission) -> None:
    """The requests are not sent after all: their pages are not in flight."""
    emission.shard.take_back(emission.picks["row"])


class Emitter:
    """Sends requests without waiting for the broker's word; a failure shows at the next call."""

    def __init__(self, settings: Settings, publisher: Publisher) -> None:
        self._topic = settings.topic(CRAWL_REQUESTS.name)
        self._publisher = publisher
        self._waiting: set[asyncio.Future[object]] = set()
        self._failure: BaseException | None = None

    async def send(self, emissions: list[Emission]) -> None:
        """Hand requests to the producer.

        Raises:
            KafkaError: these or earlier requests could not be delivered.
        """
        if self._failure is not None:
            raise self._failure
        producer = self._publisher.producer
        for emission in emissions:
            if not emission.messages:
                continue
            await self._send_shard(producer, emission)
            common_metrics.MESSAGES_PUBLISHED.labels(CRAWL_REQUESTS.name).inc(
                len(emission.messages)
            )
        while len(self._waiting) > _MOST_UNACKNOWLEDGED:
            await asyncio.wait(self._waiting, return_when=asyncio.FIRST_COMPLETED)

    async def _send_shard(self, producer: AIOKafkaProducer, emission: Emission) -> None:
        partition = emission.shard.number
        batch = producer.create_batch()
        for key, value in emission.messages:
            if batch.append(timestamp=None, key=key, value=value) is None:
                self._follow(await producer.send_batch(batch, self._topic, partition=partition))
                batch = producer.create_batch()
                batch.append(timestamp=None, key=key, value=value)
        self._follow(await producer.send_batch(batch, self._topic, partition=partition))

    def _follow(self, acknowledgement: "asyncio.Future[object]") -> None:
        self._waiting.add(acknowledgement)
        acknowledgement.add_done_callback(self._acknowledged)

    def _acknowledged(self, acknowledgement: "asyncio.Future[object]") -> None:
        self._waiting.discard(acknowledgement)
        if not acknowledgement.cancelled() and acknowledgement.exception() is not None:
            self._failure = acknowledgement.exception()


def lag_of(emissions: list[Emission], now: float, speed: float) -> float:
    """Wall seconds since the oldest slot that was just filled; 0 without any."""
    oldest = min((e.picks["time"][0] for e in emissions if e.picks.size), default=math.inf)
    return max(now - float(oldest), 0.0) / speed if oldest < math.inf else 0.0
