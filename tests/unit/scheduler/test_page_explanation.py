"""What `freshet explain` is told: in accord with what the shard then does."""

import dataclasses

import numpy as np
import pytest
from reference_shard import DAY, World, rules

from services.scheduler.explain import page_state, shard_state
from shared.contracts.codec import encode
from shared.rules.page_due import PATIENCE
from shared.rules.page_events import FAILED
from shared.store.page_status import AWAY, STATUS_NAMES

NOW = 1.7e9


def explain(world, identity, now=NOW, threshold=0.1):
    return page_state(world.shard, identity, now, threshold)


@pytest.mark.parametrize("signals", [0, 2])
def test_a_page_is_due_when_its_value_reaches_the_threshold(signals):
    world = World(rules())
    page = world.add_page(
        "a", 1, NOW - DAY, alpha=0.05, kappa=0.8, gamma=0.1, signals=signals, last_crawled_at=NOW
    )
    threshold = 6.0
    due_at = explain(world, page, NOW, threshold)["due_at"]
    value = world.reference.pages[page.page_id].value(due_at, uniform=False)
    assert value == pytest.approx(threshold, rel=1e-6)


def test_it_tells_why_a_page_waits():
    world = World(rules(timeout=50.0, max_age_days=3.0))
    page = world.add_page("a", 1, NOW - DAY, last_crawled_at=NOW - 2 * DAY)
    assert explain(world, page, threshold=1e9)["due_at"] == NOW + DAY
    assert explain(world, page)["class"] == "value"
    world.shard.selector.select(np.array([NOW]), 1.0, 0.0)
    waiting = explain(world, page, threshold=1e-6)
    assert waiting["in_flight"]
    assert waiting["class"] == "not now"
    assert (waiting["deadline_at"], waiting["due_at"]) == (NOW + 50.0, NOW + 350.0)
    assert waiting["unanswered"] == 0
    silent = explain(world, page, NOW + 51.0, threshold=1e-6)
    assert (silent["unanswered"], silent["retry_at"]) == (1, NOW + 350.0)
    row = world.shard.pages[world.shard.row_of(page.page_id)]
    for status in AWAY:
        row["status"] = status
        assert explain(world, page)["status"] == STATUS_NAMES[status]
        assert explain(world, page)["due_at"] >= NOW + 350.0  # it is looked at once more
        assert shard_state(world.shard, 1.0)[STATUS_NAMES[status]] == 1


def test_a_page_that_was_crawled_a_moment_ago_rests():
    world = World(rules(least_interval=300.0))
    page = world.add_page("a", 1, NOW - DAY, last_crawled_at=NOW - 100.0)
    resting = explain(world, page, threshold=1e-9)
    assert resting["class"] == "not now"
    assert resting["due_at"] == resting["rests_until"] == NOW + 200.0


def test_a_page_beyond_its_maximum_age_is_due_once_it_is_worth_the_floor():
    found = rules(max_age_days=3.0)
    floor = dataclasses.replace(found.picking, least_value=6.0)
    world = World(dataclasses.replace(found, picking=floor))
    page = world.add_page("a", 1, NOW - DAY, alpha=0.05, last_crawled_at=NOW - 3.5 * DAY)
    waiting = explain(world, page, threshold=1e-9)
    assert waiting["class"] == "value"
    later = explain(world, page, waiting["due_at"] + 1.0, threshold=1e-9)
    assert later["crawl_value"] == pytest.approx(6.0, rel=1e-4)
    assert later["class"] == "max-age"


def test_a_page_that_failed_again_and_again_is_due_by_its_value_alone():
    world = World(rules(max_age_days=3.0))
    page = world.add_page("a", 1, NOW - DAY, alpha=0.05, last_crawled_at=NOW - 5 * DAY)
    for number in range(PATIENCE):
        world.outcome(page.page_id, NOW - 4 * DAY + number, FAILED)
    state = explain(world, page, NOW + 4 * DAY, threshold=16.0)
    assert (state["class"], state["failures"]) == ("value", PATIENCE)
    due = explain(world, page, state["due_at"], threshold=16.0)
    assert due["crawl_value"] == pytest.approx(16.0, rel=1e-6)


def test_a_new_page_is_due_now():
    world = World(rules())
    page = world.add_page("a", 1, NOW)
    state = explain(world, page)
    assert (state["class"], state["due_at"], state["last_crawled_at"]) == ("new", NOW, None)
    assert encode(state)


def test_the_uniform_policys_pages_are_due_by_age():
    world = World(rules(uniform=True))
    page = world.add_page("a", 1, NOW, last_crawled_at=NOW)
    assert explain(world, page, threshold=4.0)["due_at"] == NOW + 4.0 * DAY


def test_unknown_pages_have_no_state():
    world = World(rules())
    page = world.add_page("a", 1, NOW)
    world.remove_page(page.page_id, NOW)
    assert explain(world, page) is None


def test_a_shard_in_figures():
    world = World(rules())
    for number in range(4):
        world.add_page("a", number, NOW - DAY, last_crawled_at=NOW - DAY)
    world.add_page("b", 9, NOW)
    world.shard.selector.select(np.array([NOW + 1.0]), 1.0, 0.0)
    world.shard.filled_until = NOW + 1.0
    state = shard_state(world.shard, 0.0)
    assert (state["pages"], state["hosts"], state["in_flight"]) == (5, 2, 1)
    assert state["never_crawled"] == 1
    assert encode(state)
