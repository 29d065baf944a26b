"""How many requests a second the scheduler makes on one core, and its cost at a lower rate."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.loading import build_shard, shard_rules
from services.scheduler.flow.reader import Reader
from services.scheduler.flow.slot_filler import Emission, SlotFiller
from services.scheduler.state.rows import NEVER
from services.scheduler.state.shard import Shard
from services.scheduler.warm_up import warm_up
from shared.contracts.codec import encode
from shared.contracts.identity import host_id_of, page_id_of, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import Allotment, CrawlOutcome, HostParameters, Multipliers
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS, HOST_PARAMETERS
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.policy.estimation.quiet_pages import QuietPages
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import SystemClock
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.store.columns import HostColumns, PageColumns, SignalsBySource, host_rules
from shared.store.history import SOURCES
from shared.store.host_factors import HostFactors
from shared.store.hosts import HostLearning
from shared.store.page_parts import PlacedUrls
from shared.store.snapshot import ShardSnapshot
from shared.units import SECONDS_PER_DAY

_PAGES_PER_HOST: Final = 50
_SIGNALLED: Final = 0.2
_ORIGIN: Final = 1.7e9
_FULL_RATE: Final = 10_000.0
_USUAL_RATE: Final = 2_000.0
_TOLD: Final = 50
"""Hosts of a shard of which something is learned at once."""


@dataclass(frozen=True, slots=True)
class _Record:
    value: bytes


def make_shards(settings: Settings, pages: int, seed: int = 1) -> dict[int, Shard]:
    """Shards of synthetic pages: heavy-tailed importance and rates, a fifth with signals."""
    random = np.random.default_rng(seed)
    hosts = [f"www.host-{number}.example" for number in range(max(pages // _PAGES_PER_HOST, 1))]
    weights = random.pareto(1.5, len(hosts)) + 0.2
    counts = random.multinomial(pages, weights / weights.sum())
    of_shard: dict[int, list[tuple[str, int]]] = {n: [] for n in range(settings.partitions)}
    for host, count in zip(hosts, counts.tolist(), strict=True):
        of_shard[shard_of(host, settings.partitions)].append((host, count))
    rules, layout = shard_rules(settings, SystemClock()), Layout.of(settings.partitions)
    shards = {}
    for number, members in of_shard.items():
        shard = build_shard(_snapshot(number, members, random, layout), rules)
        shard.is_caught_up = True
        shards[number] = shard
    return shards


def _snapshot(
    number: int, members: list[tuple[str, int]], random: np.random.Generator, layout: Layout
) -> ShardSnapshot:
    urls = [
        (f"https://{host}/section/{page % 97}/article-{page}.html", host)
        for host, count in members
        for page in range(count)
    ]
    size = len(urls)
    signalled = random.random(size) < _SIGNALLED
    crawled_at = _ORIGIN - random.exponential(20, size) * SECONDS_PER_DAY
    never = np.full(size, NEVER)
    columns = PageColumns(
        page_ids=np.array([page_id_of(url) for url, _ in urls], np.int64),
        host_ids=np.array([host_id_of(host) for _, host in urls], np.int64),
        importance=random.lognormal(0, 1, size),
        max_age_days=np.full(size, np.inf),
        unsignalled_change_rate=random.lognormal(-3, 1, size),
        signal_evidence=np.where(signalled, random.lognormal(0, 1, size), 0.0),
        signal_rate=np.where(signalled, random.lognormal(-2, 1, size), 0.0),
        last_crawled_at=crawled_at,
        last_attempt_at=crawled_at,
        last_changed_at=never,
        last_signal_at=never,
        updated_at=never,
        urgent_at=never,
        failures=np.zeros(size, np.int32),
        misses=np.zeros(size, np.int16),
        digest=np.zeros(size, np.int64),
        status=np.zeros(size, np.int16),
        signal_count=np.where(signalled, random.poisson(3.0, size), 0),
        page_class=np.zeros(size, np.int16),
    )
    pending = np.zeros((size, SOURCES), np.uint16)
    pending[:, 0] = np.where(signalled, random.poisson(0.5, size), 0)
    names = sorted((host for host, _ in members), key=host_id_of)
    known = HostColumns(
        np.array([host_id_of(host) for host in names], np.int64),
        names,
        host_rules(len(names)),
        np.full(len(names), NEVER),
        np.full(len(names), 1.0),
        np.full(len(names), 20.0),
        [["feed"] for _ in names],
        HostLearning.initial(len(names)),
        [HostFactors.none() for _ in names],
        QuietPages.initial(len(names)),
    )
    multipliers = np.ones(size, np.float32)
    return ShardSnapshot(
        number,
        columns,
        pending,
        multipliers,
        PlacedUrls.of([url.encode() for url, _ in urls]),
        known,
        {},
        np.zeros(size, np.int8),
        SignalsBySource.none(),
        layout,
    )


def run(
    pages: int = 1_000_000, seconds: float = 5.0, bootstrap_servers: str | None = None
) -> dict[str, Any]:
    """Measure the scheduler: slots to encoded requests, and the outcomes that answer them.

    Args:
        pages: in all shards of one process.
        seconds: of the budget's time to fill, at 10,000 and at 2,000 slots a second.
        bootstrap_servers: a broker to send the requests to; topics with a prefix of their own are
            made on it. None: the work in the process only.

    Returns:
        `requests_per_second`: as fast as it goes, acknowledged by the broker if there is one;
        `outcomes_per_second`: how fast the answers are taken;
        `core_share_at_2000`: processor time of picking, sending and answers, per second of a
        budget of 2,000 crawls a second; `empty_slots`; `microseconds`: processor time of a
        request at 10,000 and at 2,000 slots a second, an outcome, and what is learned of a host.
    """
    settings = load_settings(default_host_crawls_per_second=5.0)
    if bootstrap_servers is not None:
        settings = settings.model_copy(
            update={
                "kafka_bootstrap_servers": bootstrap_servers,
                "topic_prefix": f"bench-scheduler-{time.time_ns()}-",
            }
        )
    warm_up()
    bench = _Bench(
        settings, make_shards(settings, pages), with_broker=bootstrap_servers is not None
    )
    return {"pages": pages} | asyncio.run(bench.run(seconds))


class _Bench:
    def __init__(self, settings: Settings, shards: dict[int, Shard], *, with_broker: bool) -> None:
        self._settings = settings
        self._shards = shards
        self._filler = SlotFiller(settings, SystemClock(), shards)
        self._publisher = Publisher(settings) if with_broker else None
        self._emitter = Emitter(settings, self._publisher) if self._publisher else None
        self._now = _ORIGIN

    async def run(self, seconds: float) -> dict[str, Any]:
        if self._publisher is not None:
            await ensure_topics(self._settings, (CRAWL_REQUESTS,))
            await self._publisher.start()
        try:
            await self._spend(_FULL_RATE, self._settings.tick_seconds)
            full = await self._spend(_FULL_RATE, seconds)
            usual = await self._spend(_USUAL_RATE, seconds)
        finally:
            if self._publisher is not None:
                await self._publisher.stop()
        cpu = usual.picking_cpu + usual.answering_cpu
        return {
            "requests": full.requests,
            "requests_per_second": round(full.requests / full.picking),
            "outcomes_per_second": round(full.requests / full.answering),
            "core_share_at_2000": round(cpu / seconds, 4),
            "microseconds": {
                "request": _microseconds(full.picking_cpu, full.requests),
                "request_at_2000": _microseconds(usual.picking_cpu, usual.requests),
                "outcome": _microseconds(full.answering_cpu, full.requests),
                "host_parameters": self._learn(),
            },
            "empty_slots": full.slots - full.requests + usual.slots - usual.requests,
            "through_kafka": self._publisher is not None,
        }

    async def _spend(self, rate: float, seconds: float) -> "_Spent":
        spent, timeline = _Spent(), self._budget(rate)
        plan = timeline.newest
        if plan is None:
            raise RuntimeError("a timeline that was given a plan has none")
        for _ in range(max(round(seconds / self._settings.tick_seconds), 1)):
            after, self._now = self._now, self._now + self._settings.tick_seconds
            started, cpu = time.perf_counter(), time.process_time()
            times, owners = timeline.between(after, self._now)
            emissions = self._filler.fill(times, owners, plan)
            if self._emitter is not None:
                await self._emitter.send(emissions)
                await asyncio.sleep(0)
            spent.picking += time.perf_counter() - started
            spent.picking_cpu += time.process_time() - cpu
            spent.slots += times.size
            self._answer(emissions, spent)
        started, cpu = time.perf_counter(), time.process_time()
        if self._publisher is not None:
            await self._publisher.flush()
        spent.picking += time.perf_counter() - started
        spent.picking_cpu += time.process_time() - cpu
        return spent

    def _budget(self, rate: float) -> SlotTimeline:
        share = 1.0 / len(self._shards)
        allotments = [Allotment(number, share) for number in self._shards]
        message = Multipliers(1, self._now, self._now, 0.0, rate, 0.0, allotments)
        return SlotTimeline([SlotPlan.from_message(message)])

    def _answer(self, emissions: list[Emission], spent: "_Spent") -> None:
        answers = [(emission.shard, self._records_of(emission)) for emission in emissions]
        # Measured together: on a busy machine each look at the clocks may cost a turn of others.
        started, cpu = time.perf_counter(), time.process_time()
        for shard, records in answers:
            reader = Reader(Acceptance(self._now, self._now, False))
            reader.apply(shard, CRAWL_OUTCOMES.name, records)
        spent.answering += time.perf_counter() - started
        spent.answering_cpu += time.process_time() - cpu
        spent.requests += sum(len(records) for _, records in answers)

    def _learn(self) -> float:
        """Microseconds of the processor for what estimators say of a host, some hosts at once."""
        cpu, hosts = 0.0, 0
        for shard in self._shards.values():
            names = [shard.hosts.names[number] for number in range(min(len(shard.hosts), _TOLD))]
            told = [
                HostParameters(name, 0.1, 0.5, ["feed"], [0.3] * 4, [1.0] * 6, self._now)
                for name in names
            ]
            records: list[Any] = [_Record(encode(message)) for message in told]
            reader = Reader(Acceptance(self._now, self._now, False))
            started = time.process_time()
            reader.apply(shard, HOST_PARAMETERS.name, records)
            cpu, hosts = cpu + time.process_time() - started, hosts + len(records)
        return _microseconds(cpu, hosts)

    def _records_of(self, emission: Emission) -> list[Any]:
        """Outcomes of what was asked for, as they come from the broker."""
        url_of, rows = emission.shard.url_of, emission.picks["row"].tolist()
        outcomes = (CrawlOutcome(url_of(row), self._now, result="unchanged") for row in rows)
        return [_Record(encode(outcome)) for outcome in outcomes]


def _microseconds(cpu: float, count: int) -> float:
    return round(cpu / max(count, 1) * 1e6, 2)


@dataclass(slots=True)
class _Spent:
    requests: int = 0
    slots: int = 0
    picking: float = 0.0
    picking_cpu: float = 0.0
    answering: float = 0.0
    answering_cpu: float = 0.0
