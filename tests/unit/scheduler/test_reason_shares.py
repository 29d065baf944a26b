"""Parts of the slots are kept for reasons to crawl: who waits for one gets it, and none is lost."""

import dataclasses
from collections import Counter

import numpy as np
import pytest
from examples import some
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_shard import DAY, NEVER, World, rules
from test_shard_selection import START, something_happens

from services.scheduler.picking.board_rows import UPPER_TIERS
from services.scheduler.picking.turns import NOBODY_WAITS, REST, next_turn, take_turn
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.report_notes import REASONS
from services.verify.simulation.looking import Looks, every_pick_looked_at
from shared.contracts.messages import HostLimit, PageUpdate
from shared.contracts.request_ids import NO_REQUEST
from shared.rules.page_events import UNCHANGED
from shared.runtime.reason_shares import SHARED_REASONS, shares_by_queue
from shared.runtime.settings import SettingsError, load_settings


def sharing(shares, **other):
    """Rules by which parts of the slots are kept."""
    found = rules(**other)
    picking = dataclasses.replace(found.picking, shares=shares_by_queue(shares))
    return dataclasses.replace(found, picking=picking)


def picks_of(world, slots, rate, least=0.0):
    """What the shard picks: the reference beside it knows no turns."""
    return world.shard.select(np.asarray(slots, float), rate, least)


def counted(picks):
    tiers = picks["tier"][picks["row"] >= 0]
    return Counter("value" if REASONS[t] == "retry" else REASONS[t] for t in tiers)


# Turns alone, beside what is owed by plain sums.

waiting = st.sets(st.integers(0, REST), min_size=1)
stretches = st.lists(st.tuples(waiting, st.integers(1, 60)), min_size=1, max_size=12)
weights = st.lists(st.integers(0, 9), min_size=REST + 1, max_size=REST + 1).filter(any)


def turns_of(shares, demand):
    """Who takes each slot, of those that wait then."""
    tags, taken = np.zeros(REST + 1), []
    for who_waits in demand:
        idle = sum(1 << sharer for sharer in range(REST + 1) if sharer not in who_waits)
        sharer = int(next_turn(shares, tags, idle))
        if sharer != NOBODY_WAITS:
            take_turn(shares, tags, sharer)
        taken.append(sharer)
    return taken


@settings(max_examples=150, deadline=None)
@given(weights, stretches)
def test_who_waits_gets_a_part_in_proportion_and_no_slot_is_lost(weights, stretches):
    shares = np.array(weights) / sum(weights)
    demand = [who for who, slots in stretches for _ in range(slots)]
    taken = turns_of(shares, demand)
    begin = 0
    for who, slots in stretches:
        served = Counter(taken[begin : begin + slots])
        begin += slots
        active = {sharer for sharer in who if weights[sharer]}
        if not active:
            assert served == {NOBODY_WAITS: slots}
            continue
        assert set(served) <= active
        least = min(shares[sharer] for sharer in active)
        for one in active:
            for other in active:
                apart = served[one] / shares[one] - served[other] / shares[other]
                # A turn of each is under way when the stretch begins, and when it ends.
                assert apart <= 2.0 * (1.0 / shares[one] + 1.0 / shares[other]) + 1e-6
        total = sum(shares[sharer] for sharer in active)
        for one in active:
            owed = slots * shares[one] / total
            assert served[one] >= owed - 2.0 * shares[one] / total * len(active) * 2.0 / least


def test_who_did_not_wait_has_saved_nothing():
    shares = np.zeros(REST + 1)
    shares[0], shares[1] = 0.5, 0.5
    taken = turns_of(shares, [{0}] * 1000 + [{0, 1}] * 20)
    assert abs(Counter(taken[1000:])[0] - 10) <= 1


# Shards.


def crowded(shares, per_reason=400, hosts=40, **other):
    """Pages of every reason, more than there are slots for."""
    world = World(sharing(shares, max_age_days=30.0, **{"host_rate": 1000.0} | other))
    ages = {"value": START - 20 * DAY, "max-age": START - 40 * DAY, "new": NEVER}
    for reason, crawled_at in ages.items():
        for number in range(per_reason):
            importance = 1.0 + number % 17 / 3.0
            world.add_page(
                f"h{number % hosts}",
                f"{reason}{number}",
                START - DAY,
                importance=importance,
                last_crawled_at=crawled_at - number,
            )
    return world


def answer(shard, picks):
    """All that was asked for is crawled, and found unchanged."""
    asked = picks[picks["row"] >= 0]
    ids = shard.page_ids_of(asked["row"])
    none = np.zeros(ids.size, np.uint32)
    kinds = np.full(ids.size, UNCHANGED, np.int8)
    shard.outcomes(Outcomes(ids, asked["time"], kinds, np.full(ids.size, NO_REQUEST), none))


def ask_for(world, number, now):
    identity = world.identities[number]
    world.shard.upsert(identity, PageUpdate("upsert", identity.url, urgent=True), now)


@pytest.mark.parametrize(
    ("shares", "expected"),
    [
        ({}, {"new": 300}),
        ({"value": 0.5, "max-age": 0.3, "new": 0.2}, {"value": 150, "max-age": 90, "new": 60}),
        ({"value": 0.1}, {"value": 30, "new": 270}),
        ({"max-age": 0.25, "urgent": 0.5}, {"max-age": 150, "new": 150}),
        ({"max-age": 0.2, "value": 0.8}, {"max-age": 60, "value": 240}),
    ],
)
def test_slots_are_shared_as_was_said_and_what_nobody_uses_goes_to_the_others(shares, expected):
    world = crowded(shares)
    found = Counter()
    for tick in range(10):
        found += counted(picks_of(world, START + tick + np.arange(1, 31) / 31, 30.0))
    assert found.total() == 300
    for reason in expected.keys() | found.keys():
        assert abs(found[reason] - expected.get(reason, 0)) <= 2, (reason, found)


def test_who_has_no_part_gets_what_the_others_leave():
    world = crowded({"value": 0.6, "max-age": 0.4}, per_reason=20)
    picks = picks_of(world, START + np.arange(1, 61) / 61, 60.0)
    assert counted(picks) == {"value": 20, "max-age": 20, "new": 20}
    assert set(picks["tier"][-20:]) == {REASONS.index("new")}


@pytest.mark.slow(0.5)
def test_a_host_at_its_limit_shares_its_crawls_too():
    # New pages alone would take all that the host can do, for hours.
    world = crowded({"value": 0.5, "new": 0.2}, per_reason=3000, hosts=1, host_rate=1.0)
    found = Counter()
    for tick in range(300):
        found += counted(picks_of(world, START + 2.0 * tick + np.arange(8) / 4.0, 4.0))
    assert found.total() >= 590
    assert abs(found["value"] / found.total() - 0.5) < 0.02
    assert abs(found["new"] / found.total() - 0.5) < 0.02


@pytest.mark.parametrize("seed", some(range(6), 2))
def test_each_pick_is_the_best_of_whose_turn_it_is(seed):
    rng = np.random.default_rng([seed, 7])
    shares = [
        {"value": 0.5, "max-age": 0.3, "new": 0.2},
        {"new": 0.1, "value": 0.2},
        {"urgent": 0.2, "max-age": 0.5, "value": 0.1},
    ][seed % 3]
    other = {"host_rate": float(rng.choice([0.5, 2.0, 50.0])), "timeout": 8.0, "retry": 6.0}
    world = crowded(shares, per_reason=60, hosts=8, least_interval=3.0 * (seed % 2), **other)
    world.shard.take_host_limit(
        HostLimit("h1.example", crawl_delay_seconds=5.0, only="crawl-delay"), START
    )
    looks, now, found = Looks(), START, Counter()
    least = 0.05 if seed == 4 else 0.0
    with every_pick_looked_at(looks):
        for _ in range(60):
            slots = now + np.sort(rng.random(rng.integers(1, 8)))
            now = float(slots[-1]) + 1e-6
            picks = picks_of(world, slots, 8.0, least)
            found += counted(picks)
            rows = picks["row"][picks["row"] >= 0]
            something_happens(rng, world, now, [int(p) for p in world.shard.page_ids_of(rows)])
            for number in rng.integers(0, len(world.identities), rng.integers(0, 3)):
                ask_for(world, int(number), now)
    assert looks.finding().examples == []
    assert looks.uncertain == 0
    assert found.keys() >= shares.keys()  # every reason had turns


def test_a_new_page_that_was_crawled_unasked_goes_by_value_at_once():
    """It was not the first of the new ones: nobody would have looked at it for long."""
    world = World(sharing({"new": 0.5, "value": 0.5}))
    for number in range(20):
        world.add_page(f"h{number}", f"new{number}", START - DAY, importance=20.0 - number)
    first = picks_of(world, [START], 1.0)
    assert counted(first) == {"new": 1}
    crawled = world.identities[10].page_id
    assert crawled not in world.shard.page_ids_of(first["row"])
    world.outcome(crawled, START - DAY / 2, UNCHANGED)
    picks = picks_of(world, START + np.arange(1, 4), 1.0)
    assert counted(picks) == {"new": 2, "value": 1}
    by_value = picks["row"][picks["tier"] == REASONS.index("value")]
    assert world.shard.page_ids_of(by_value).tolist() == [crawled]


@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0])
@pytest.mark.parametrize(
    "shares", [{"new": 0.5, "value": 0.5}, {"value": 0.9}, {"value": 0.5, "max-age": 0.25}]
)
def test_a_host_that_is_free_in_step_with_the_slots_shares_its_crawls_among_reasons(shares, rate):
    """Every few slots exactly it is worth more than all others: by value, and in what is new."""
    world = World(sharing(shares, max_age_days=30.0, host_rate=1000.0))
    for host, importance in (("busy", 100.0), ("other", 1.0)):
        for number in range(500):
            ages = {"value": START - 20 * DAY, "max-age": START - 40 * DAY, "new": NEVER}
            for reason, at in ages.items():
                page = f"{reason}{number}"
                crawled_at = at - number
                world.add_page(
                    host, page, START - DAY, importance=importance, last_crawled_at=crawled_at
                )
    world.shard.take_host_limit(HostLimit("busy.example", rate), START)
    busy, found = world.shard.hosts.intern("busy.example"), Counter()
    for tick in range(200):
        picks = picks_of(world, START + tick + np.array([0.25, 0.75]), 2.0)
        found += counted(picks[world.shard.pages["host"][picks["row"]] == busy])
    assert abs(found.total() - 200 * rate) <= 2
    rest = 1.0 - sum(shares.values())
    for reason in shares.keys() | ({"new"} if rest else set()):
        share = shares.get(reason, rest)
        assert found[reason] >= 0.5 * share * found.total() - 1, (reason, found)


@pytest.mark.slow(1)
def test_over_an_hour_none_starves_whatever_comes():
    """Hosts at their limits and with crawl-delays, a wave of new pages, storms of urgent ones."""
    rng = np.random.default_rng(1)
    shares = {"urgent": 0.1, "new": 0.2, "max-age": 0.3, "value": 0.3}
    world = crowded(shares, per_reason=3000, hosts=60, host_rate=0.4)
    for number in range(0, 60, 3):
        delayed = HostLimit(f"h{number}.example", crawl_delay_seconds=20.0, only="crawl-delay")
        world.shard.take_host_limit(delayed, START)
    by_minute, times = [], {}
    for minute in range(60):
        if minute == 10:
            for number in range(4000):
                world.add_page(f"h{number % 60}", f"wave{number}", START + 60.0 * minute)
        found = Counter()
        for second in range(0, 60, 2):
            now = START + 60.0 * minute + second
            if minute % 6 == 3:
                for number in rng.integers(0, len(world.identities), 20):
                    ask_for(world, int(number), now)
            picks = picks_of(world, now + np.arange(1, 21) / 10.0, 10.0)
            found += counted(picks)
            for row, time in picks[picks["row"] >= 0][["row", "time"]].tolist():
                times.setdefault(int(world.shard.pages["host"][row]), []).append(time)
            answer(world.shard, picks)
        by_minute.append(found)
    assert sum(by_minute, Counter()).total() == 60 * 600  # work is conserved
    for minute, found in enumerate(by_minute):
        # Later, what is late is left at hosts with crawl-delays alone.
        waits = {"value", "max-age", "new"} if minute < 9 else {"value"}
        for reason in waits | ({"urgent"} if minute % 6 == 3 else set()):
            assert found[reason] >= 600 * shares[reason] - 5, (minute, found)
    for host, crawled in times.items():
        is_delayed = int(world.shard.hosts.names[host][1:].split(".")[0]) % 3 == 0
        keeps_to_its_limit(np.array(crawled), 0.4, 20.0 if is_delayed else 0.0)


def keeps_to_its_limit(crawled, rate, delay):
    assert np.diff(crawled).min() >= delay - 1e-6
    for first in range(0, crawled.size, 5):
        window = crawled[first:] - crawled[first]
        assert np.all(np.arange(1, window.size + 1) <= 2 + rate * window + 1e-3)


@pytest.mark.parametrize(
    ("shares", "fault"),
    [
        ({"new": 0.6, "value": 0.5}, "more than 1"),
        ({"retry": 0.1}, "goes by value"),
        ({"old": 0.1}, "none of value, max-age, new, urgent"),
        ({"new": -0.1}, "between 0 and 1"),
        ({"new": float("nan")}, "between 0 and 1"),
    ],
)
def test_shares_that_cannot_be_are_refused(shares, fault):
    with pytest.raises(SettingsError, match=fault):
        load_settings(reason_shares=shares)


def test_no_share_at_all_is_the_order_of_the_tiers():
    assert shares_by_queue({}) == shares_by_queue({"new": 0.0}) == ()
    assert shares_by_queue({"urgent": 0.1, "value": 0.4}) == (0.4, 0.0, 0.0, 0.1)
    assert len(shares_by_queue({"new": 1.0})) == UPPER_TIERS + 1
    # As tiers are numbered, but that retries have the part of what goes by value.
    assert (REASONS[0], *REASONS[2:]) == SHARED_REASONS
