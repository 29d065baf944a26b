"""What pages cannot use of the budget, or is worth too little, is left."""

from test_slot_filling import NOW, fill, make_shards, requests_of, timeline

from services.scheduler import metrics
from services.scheduler.flow.loading import shard_rules
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings


def test_what_pages_cannot_use_of_the_budget_stays_unused_and_is_counted():
    shards = make_shards(pages=5)
    before = metrics.EMPTY_SLOTS._value.get()
    assert len(requests_of(fill(shards, timeline(40.0)))) == 20
    assert sum(shard.notes.unused_slots for shard in shards.values()) == 20
    assert metrics.EMPTY_SLOTS._value.get() == before + 20
    shards[0].notes.unused_slots += 3
    assert shards[0].notes.take_fleet_notes() == (0, 0, shards[0].notes.unused_slots)
    assert shards[0].notes.take_fleet_notes() == (0, 0, 0)


def test_no_slot_is_spent_on_what_is_worth_less_than_the_floor():
    poor = make_shards(count=1, least_value=1e9)
    assert requests_of(fill(poor, timeline(40.0, shards=1))) == []
    assert poor[0].notes.unused_slots == 40
    rich = make_shards(count=1, least_value=1e-9)
    assert len(requests_of(fill(rich, timeline(40.0, shards=1)))) == 40


def test_settings_say_how_long_pages_rest_after_good_crawls_and_failed_ones():
    clock = ManualClock(NOW)
    rested = shard_rules(load_settings(failed_retry_seconds=10.0), clock)
    assert (rested.picking.least_interval, rested.failed_retry) == (300.0, 300.0)
    restless = load_settings(failed_retry_seconds=10.0, least_interval_seconds=0.0, least_value=2.0)
    found = shard_rules(restless, clock)
    assert (found.picking.least_interval, found.picking.least_value) == (0.0, 2.0)
    assert found.failed_retry == 10.0
