"""A request that is given up before the producer has it was not made: nobody counts it."""

from dataclasses import replace

import numpy as np
import pytest
from reference_shard import DAY, rules, url_of
from test_slot_filling import (
    NOW,
    Collector,
    FakePublisher,
    Group,
    Handler,
    SlowThread,
    fill,
    make_shards,
    timeline,
)

from services.scheduler import metrics
from services.scheduler.demand.reporter import DemandReporter
from services.scheduler.demand.tally import demand_of
from services.scheduler.flow.emitter import Emitter
from services.scheduler.flow.pacer import Pacer, Plans
from services.scheduler.flow.slot_filler import SlotFiller, parted, take_back
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rules import ClassRules
from shared.contracts.messages import PageUpdate
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import steady


def reporter_of(shard):
    shard.filled_until = NOW
    reporter = DemandReporter(shard, "me", 10.0)
    reporter.set_demand(demand_of(shard, 0.1))
    return reporter


def counted():
    return metrics.REQUESTS.labels("value")._value.get()


async def sent(emission):
    """The producer has it."""
    await Emitter(load_settings(), FakePublisher()).send([emission])


async def test_what_is_taken_back_is_in_no_report_and_in_no_metric():
    shards, before = make_shards(count=1, pages=300), counted()
    reporter = reporter_of(shards[0])
    (emission,) = fill(shards, timeline(40.0, shards=1))
    late, kept = parted(emission, NOW + 0.5)
    take_back(late)
    await sent(kept)

    report = reporter.report(NOW + 1.0, 0.1)

    assert report.achieved_crawls_per_second == len(kept.messages) == pytest.approx(20, abs=1)
    assert [of.crawls_per_second for of in report.reasons] == [len(kept.messages)]
    assert counted() - before == len(kept.messages)


def test_what_was_reported_before_it_was_taken_back_counts_less_the_next_time():
    shards = make_shards(count=1, pages=300)
    reporter, slots = reporter_of(shards[0]), timeline(40.0, shards=1)
    (emission,) = fill(shards, slots)
    told = [reporter.report(NOW + 1.0, 0.1)]
    take_back(parted(emission, NOW + 0.25)[0])
    told.append(reporter.report(NOW + 2.0, 0.1))
    filler = SlotFiller(load_settings(), ManualClock(NOW), shards)
    filler.fill(*slots.between(NOW + 1.0, NOW + 2.0), slots.newest)
    told.append(reporter.report(NOW + 3.0, 0.1))
    assert [report.achieved_crawls_per_second for report in told] == pytest.approx(
        [40.0, 0.0, 30.0], abs=1
    )
    assert all(of.crawls_per_second >= 0 for report in told for of in report.reasons)


async def test_of_a_class_nothing_counts_that_is_taken_back():
    terms = (ClassRules("news", 1.0, 0.0, 0),)
    shard = make_shard(0, replace(rules(host_rate=1000.0), classes=terms))
    shard.is_caught_up = True
    for page in range(60):
        identity = url_of(f"h{page % 5}", page)
        named = "news" if page % 2 else None
        update = PageUpdate("upsert", identity.url, crawled_at=NOW - 3 * DAY, page_class=named)
        shard.upsert(identity, update, NOW - DAY)
    reporter, label = reporter_of(shard), metrics.CLASS_REQUESTS.labels("news")
    before = label._value.get()
    (emission,) = fill({0: shard}, timeline(20.0, shards=1))
    late, kept = parted(emission, NOW + 0.5)
    take_back(late)
    await sent(kept)
    news = int(np.count_nonzero(shard.records["page_class"][kept.picks["row"]]))

    classes = {of.page_class: of for of in reporter.report(NOW + 1.0, 0.1).classes}

    assert classes["news"].crawls_per_second == news > 0
    assert classes[""].crawls_per_second == len(kept.messages) - news
    assert label._value.get() - before == news


async def test_slots_that_took_too_long_to_fill_are_reported_as_empty():
    """Else the coordinator takes a scheduler for as fast as it is asked to be."""
    clock, collector = ManualClock(NOW), Collector()
    handler = Handler(make_shards(pages=200))
    reporters = [reporter_of(shard) for shard in handler.shards.values()]
    plans, thread = Plans(timeline(100.0), steady), SlowThread(clock, 0.8)
    pacer = Pacer(load_settings(), clock, plans, Group(), handler, thread, collector)
    clock.advance(0.9)
    await pacer.tick()

    told = [reporter.report(NOW + 1.0, 0.1).achieved_crawls_per_second for reporter in reporters]

    assert sum(told) == len(collector.sent) == pytest.approx(70, abs=1)
