"""The lab learns as the worker does: the same messages, the same parameters, to the last digit."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from aiokafka import ConsumerRecord
from replay_traces import paper_trace

from services.estimator.handler import EstimatorHandler
from services.estimator.processing import process
from services.estimator.refitting import refit
from services.replay import columns as state
from services.replay.by_calendar import CalendarRun
from services.replay.by_value import CALENDAR, ValuePolicy, run_by_value
from services.replay.selecting import Rules
from services.replay.slots import Budget
from services.replay.trace import Trace
from services.replay.values import EXACT
from services.replay.virtual_estimator import (
    MATERIAL_CHANGE,
    PRIOR_REFIT_DAYS,
    SLOT_NAMES,
    Batch,
    News,
    VirtualEstimator,
)
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify
from shared.contracts.messages import (
    CrawlOutcome,
    HostParameters,
    PageParameters,
    PageSignal,
    PageUpdate,
)
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import SystemClock
from shared.runtime.settings import Settings

DAY = 86_400.0
EXACTLY = 1e-9


def web(pages: int = 240, days: float = 80.0) -> Trace:
    """Pages of five hosts in a few directories, born at any time, with signals of five sources
    that are right more or less often."""
    trace = paper_trace(pages=pages, days=days, seed=3, recall=(2.0, 1.0))
    rng = np.random.default_rng(4)
    host = np.sort(rng.integers(0, 5, pages))
    born = np.where(rng.random(pages) < 0.2, rng.random(pages) * days / 2, 0.0)
    extra = np.sort(rng.random(400) * days)
    signal_days = np.concatenate([trace.signal_days, extra])
    order = np.argsort(signal_days, kind="stable")
    return replace(
        trace,
        host=host,
        site=np.arange(5),
        host_names=tuple(f"h{number}.example" for number in range(5)),
        urls=tuple(f"https://h{h}.example/d{p % 4}/{p}" for p, h in enumerate(host.tolist())),
        host_limit=np.full(5, np.inf),
        born_days=born,
        held=rng.random(pages) < 0.9,
        signal_days=signal_days[order],
        signal_pages=np.concatenate([trace.signal_pages, rng.integers(0, pages, 400)])[order],
        signal_sources=rng.integers(0, 5, signal_days.size),
        known=None,
    )


class Listening(VirtualEstimator):
    """Writes down what it is told, and what it says."""

    def __init__(self, trace: Trace, signal_delay_days: float) -> None:
        super().__init__(trace, signal_delay_days)
        self.heard: list[tuple[np.ndarray, Batch, float, News]] = []
        self._fresh = np.empty(0, np.int64)

    def add(self, rows: np.ndarray) -> None:
        super().add(rows)
        self._fresh = np.concatenate([self._fresh, rows])

    def take(self, batch: Batch, day: float) -> News:
        news = super().take(batch, day)
        self.heard.append((self._fresh, batch, day, news))
        self._fresh = np.empty(0, np.int64)
        return news


def listened(trace: Trace, crawls_per_day: float) -> Listening:
    """A replay through the scheduler's calendar, and all that the lab's estimator heard of it."""
    slots = Budget.constant(crawls_per_day).slot_times(trace.days)
    estimator = Listening(trace, 0.0)
    rules = Rules(EXACT, 1.0, state.PRODUCTION, True, 0.0)
    events = trace.merged_events(state.source_slots(trace))
    columns, hosts = state.new_columns(trace), state.new_hosts(trace)
    run = CalendarRun(trace, columns, hosts, rules, slots, events, estimator)
    run.fill(0, slots.size, np.empty(slots.size, np.int64))
    return estimator


def message(kind: str, value: object) -> ConsumerRecord:
    return ConsumerRecord(kind, 0, 0, 0, 0, None, encode(value), None, -1, -1, ())


def messages(trace: Trace, fresh: np.ndarray, batch: Batch) -> dict[str, list[ConsumerRecord]]:
    """A batch as the topics carry it."""
    born = trace.born_days * DAY
    updates = [
        PageUpdate(
            "upsert",
            trace.urls[row],
            float(trace.importance[row]),
            None,
            float(born[row]),
            float(born[row]) if trace.held[row] else None,
        )
        for row in fresh.tolist()
    ]
    pages = [identify(trace.urls[row]) for row in batch.signal_pages.tolist()]
    signals = [
        PageSignal(page.page_id, page.url, page.host, SLOT_NAMES[slot], day * DAY)
        for page, slot, day in zip(
            pages, batch.signal_slots.tolist(), batch.signal_days.tolist(), strict=True
        )
    ]
    outcomes = [
        CrawlOutcome(trace.urls[row], day * DAY, result="changed" if changed else "unchanged")
        for row, day, changed in zip(
            batch.crawled.tolist(), batch.crawl_days.tolist(), batch.changed.tolist(), strict=True
        )
    ]
    return {
        topic.name: [message(topic.name, value) for value in values]
        for topic, values in (
            (PAGE_UPDATES, updates),
            (PAGE_SIGNALS, signals),
            (CRAWL_OUTCOMES, outcomes),
        )
        if values
    }


def worker() -> EstimatorHandler:
    """The worker's processor, without servers."""
    settings = Settings(partitions=1)
    return EstimatorHandler(settings, SystemClock(), None, asyncio.Event())  # type: ignore[arg-type]


@pytest.mark.slow(8)
@pytest.mark.long
def test_the_worker_learns_the_same_from_the_same_messages() -> None:
    trace = web()
    lab = listened(trace, 25.0)
    handler = worker()
    from services.estimator.shard import Shard

    shard = handler._shards[0] = Shard(0)
    refits = 0
    for fresh, batch, day, news in lab.heard:
        now = float(day) * DAY
        records = messages(trace, fresh, batch)
        due = handler._refits.are_due([shard], now)
        refits += due
        accepted = Acceptance(now, now, record_times_count=False)
        refitting = refit if due else None
        done, said, _ = process(
            handler._shards, {0: records}, accepted, handler._settings, refitting
        )
        if due:
            handler._refits.noted([shard], now, 0.0)
        assert not any(part.refused for part in done)
        _same_news(trace, said[0].pages, said[0].hosts, news)
    assert refits > 20
    assert shard.hosts.names == lab.shard.hosts.names
    for name in shard.pages.dtype.names or ():
        if name != "page_id":
            _same(name, shard.pages[name], lab.shard.pages[name])
    for name in shard.rings._fields:
        count = len(shard.pages)
        _same(name, getattr(shard.rings, name)[:count], getattr(lab.shard.rings, name)[:count])
    count = len(shard.hosts.names)
    for name in shard.hosts.records.dtype.names or ():
        _same(name, shard.hosts.records[name][:count], lab.shard.hosts.records[name][:count])
    for name in shard.hosts.learning._fields:
        mine, theirs = (getattr(hosts.learning, name) for hosts in (lab.shard.hosts, shard.hosts))
        _same(name, theirs[:count], mine[:count])
    # It was worth comparing: all of it was learned from.
    assert (shard.rings.seen[: len(shard.pages)] >= 16).any()
    assert np.ptp(shard.hosts.learning.precision[:count]) > 0.15
    assert (shard.hosts.records["quiet_belief"][:count] < 0.9).any()


def _same_news(
    trace: Trace, pages: list[tuple[bytes, bytes]], hosts: list[tuple[bytes, bytes]], news: News
) -> None:
    said = [decode(PageParameters, value) for _, value in pages]
    urls = [identify(trace.urls[row]).page_id for row in news.pages.tolist()]
    assert sorted(one.page_id for one in said) == sorted(urls)
    mine = dict(zip(urls, zip(news.alpha.tolist(), news.kappa.tolist(), strict=True), strict=True))
    for one in said:
        theirs = (
            np.nan if one.unsignalled_change_rate is None else one.unsignalled_change_rate,
            np.nan if one.signal_evidence is None else one.signal_evidence,
        )
        _same("news", np.array(theirs), np.array(mine[one.page_id]))
    for said_of, known in zip(hosts, sorted(news.hosts, key=lambda one: one.host), strict=True):
        del known
        assert decode(HostParameters, said_of[1]) in news.hosts


def _same(name: str, one: np.ndarray, other: np.ndarray) -> None:
    if one.dtype.kind == "S":  # a name
        np.testing.assert_array_equal(one, other, err_msg=name)
        return
    np.testing.assert_allclose(one, other, rtol=EXACTLY, atol=0.0, err_msg=name)


@pytest.mark.slow(0.5)
def test_what_the_scheduler_knows_is_what_was_learned() -> None:
    trace = web(pages=150, days=40.0)
    slots = Budget.constant(20.0).slot_times(trace.days)
    estimator = VirtualEstimator(trace, 0.0)
    rules = Rules(EXACT, 1.0, state.PRODUCTION, True, 0.0)
    events = trace.merged_events(state.source_slots(trace))
    columns, hosts = state.new_columns(trace), state.new_hosts(trace)
    run = CalendarRun(trace, columns, hosts, rules, slots, events, estimator)
    run.fill(0, slots.size, np.empty(slots.size, np.int64))
    known, learned = run.shard.shard, estimator.shard
    rows = known.rows_of(learned.pages["page_id"])
    silent = known.pages[rows]["gamma"] == 0
    expected = learned.pages["signal_rate"]
    np.testing.assert_allclose(
        known.pages[rows]["gamma"][~silent], expected[~silent], rtol=2 * MATERIAL_CHANGE
    )
    # Pages without a record go by their host, materially; the others by themselves.
    new = learned.rings.seen[: len(learned.pages)] == 0
    assert new.any()
    priors = learned.hosts.priors
    of_host = (priors.shape / priors.rate)[learned.pages["host"]]
    np.testing.assert_allclose(
        known.pages[rows]["alpha"][new], of_host[new], rtol=2 * MATERIAL_CHANGE
    )


def test_priors_are_refitted_as_often_as_by_the_worker() -> None:
    assert Settings.model_fields["material_change"].default == MATERIAL_CHANGE
    assert Settings.model_fields["prior_refit_days"].default == PRIOR_REFIT_DAYS
    trace = paper_trace(pages=40, days=30.0)
    policy = ValuePolicy(EXACT, state.PRODUCTION, selection=CALENDAR)
    slots = Budget.constant(12.0).slot_times(trace.days)
    run = run_by_value(trace, slots, policy)
    assert run.estimator is not None
    assert run.estimator.shard.records > 300
