"""The picks of a shard against looking at every page for every slot, whatever happens between."""

import math
from collections import Counter

import numpy as np
import pytest
from examples import some
from reference_shard import DAY, World, rules

from services.scheduler.picking.wheel import is_put_off
from services.verify.simulation.looking import Looks, every_pick_looked_at
from shared.contracts.messages import HostLimit
from shared.rules.page_events import FAILED, IS_DISALLOWED, IS_GONE, IS_REDIRECTED, UNCHANGED

START = 1.7e9


def random_world(rng, pages=300, hosts=12, **settings):
    world = World(rules(**settings))
    weights = rng.pareto(1.0, hosts) + 0.1
    for number in range(pages):
        host = f"h{rng.choice(hosts, p=weights / weights.sum())}"
        signalled = rng.random() < 0.3
        world.add_page(
            host,
            number,
            START - 100 * DAY,
            importance=float(rng.lognormal(0, 1)),
            alpha=float(rng.lognormal(-2, 1)),
            gamma=float(rng.lognormal(-1, 1)) if signalled else 0.0,
            kappa=float(rng.lognormal(-0.5, 1)) if signalled else 0.0,
            last_crawled_at=START - float(rng.exponential(10)) * DAY,
            signals=int(rng.poisson(0.5)) if signalled else 0,
        )
    return world


def something_happens(rng, world, now, picked):
    """A few random events at a time."""
    ids = [identity.page_id for identity in world.identities]
    for page_id in [p for p in picked if p is not None]:
        if rng.random() < 0.8:
            kinds = [UNCHANGED, FAILED, IS_GONE, IS_REDIRECTED]
            result = rng.choice(kinds, p=[0.8, 0.15, 0.04, 0.01])
            world.outcome(page_id, now - float(rng.random()) * 0.01, result)
    for page_id in rng.choice(ids, 5):
        world.signal(int(page_id), now - float(rng.exponential(1.0)))
    if rng.random() < 0.2:
        host = str(rng.choice(sorted(world.reference.hosts)))
        rate = float(rng.choice([0.0, 0.2, 1.0, 5.0]))
        blocked = now + float(rng.exponential(20)) if rng.random() < 0.3 else None
        world.limit_host(host, rate, blocked, now)
    if rng.random() < 0.2:
        world.remove_page(int(rng.choice(ids)), now)
    if rng.random() < 0.3:
        host = str(rng.choice(sorted(world.reference.hosts))).removesuffix(".example")
        world.add_page(host, f"new-{now}", now, importance=float(rng.lognormal(0, 1)))


@pytest.mark.parametrize("seed", some(range(12), 4))
@pytest.mark.parametrize("speed", [1.0, 3600.0])
def test_picks_are_the_most_urgent(seed, speed):
    rng = np.random.default_rng(seed)
    settings = {"speed": speed, "timeout": 30.0 * speed, "retry": 20.0 * speed}
    settings["host_rate"] = float(rng.choice([0.5, 2.0, 50.0])) / speed
    settings["max_age_days"] = float(rng.choice([math.inf, 25.0]))
    settings["uniform"] = seed % 4 == 3
    world = random_world(rng, **settings)
    rate = float(rng.choice([2.0, 20.0, 100.0])) / speed
    least = 0.05 if seed % 3 == 1 and not settings["uniform"] else 0.0
    now = START
    for _ in range(30):
        slots = now + np.sort(rng.random(rng.integers(1, 8))) / rate
        now = float(slots[-1]) + 1e-6 * speed
        picked = world.pick(slots, rate, least)
        something_happens(rng, world, now, picked)


@pytest.mark.parametrize("seed", some(range(8), 3))
def test_picks_are_the_most_urgent_where_pages_rest_between_crawls(seed):
    rng = np.random.default_rng(seed)
    floor = 0.02 if seed % 2 else 0.0
    settings = {"timeout": 5.0, "retry": 2.0, "host_rate": 50.0, "max_age_days": 1e-4}
    world = random_world(rng, pages=60, least_interval=6.0, least_value=floor, **settings)
    now, empty, last = START, 0, {}
    for _ in range(60):
        slots = now + np.sort(rng.random(rng.integers(1, 8)))
        now = float(slots[-1]) + 1e-6
        picked = world.pick(slots, 5.0, floor)
        for page_id, slot in zip(picked, slots, strict=True):
            empty += page_id is None
            if page_id is not None:
                assert slot - last.get(page_id, -math.inf) >= 5.9
                last[page_id] = slot
        something_happens(rng, world, now, picked)
    assert empty


@pytest.mark.parametrize("seed", range(3))
def test_the_look_of_the_simulator_knows_the_rules_of_picking(seed):
    rng = np.random.default_rng(seed)
    settings = {"timeout": 5.0, "retry": 4.0, "max_age_days": 25.0, "host_rate": 2.0}
    settings["least_interval"], settings["least_value"] = 3.0 * seed, 0.5 * seed
    world = random_world(rng, pages=40, **settings)
    looks, picks, now = Looks(), [], START
    with every_pick_looked_at(looks):
        for _ in range(60):
            now += 1.0
            picks += world.pick(now + np.array([0.1, 0.2]), 2.0)
            for page_id in [p for p in picks[-2:] if p is not None and rng.random() < 0.5]:
                result = rng.choice(
                    [UNCHANGED, FAILED, IS_GONE, IS_DISALLOWED], p=[0.3, 0.5, 0.18, 0.02]
                )
                world.outcome(page_id, now + 0.3, result)
    asked = Counter(page_id for page_id in picks if page_id is not None)
    assert max(asked.values()) > 3  # some have failed again and again, and are asked for by value
    assert looks.picks == len(picks)
    assert looks.finding().examples == []


@pytest.mark.slow(0.5)
def test_all_pages_are_looked_at_once_where_nothing_surprises():
    rng = np.random.default_rng(1)
    world = random_world(rng, pages=3000, hosts=300, host_rate=10.0)
    for tick in range(40):
        world.pick(START + 0.05 * tick + np.array([0.01, 0.03]), 40.0)
    selector = world.shard.selector
    assert selector.rebuilds <= 3
    assert selector.uncertain_picks == 0


def test_pages_that_are_all_alike_are_all_crawled():
    world = World(rules(host_rate=1000.0))
    for number in range(500):
        world.add_page("h", number, START - DAY, last_crawled_at=START - 10 * DAY)
    picked = world.pick(START + np.arange(1, 401) / 400, 400.0)
    assert len(set(picked)) == 400


def test_a_limited_host_does_not_hold_up_others():
    world = World(rules(host_rate=0.1))
    for number in range(200):
        world.add_page("rich", number, START - DAY, importance=100.0, last_crawled_at=START - DAY)
    for number in range(100):
        world.add_page(f"poor{number}", 0, START - DAY, last_crawled_at=START - DAY)
    picked = world.pick(START + np.arange(1, 51) / 50, 50.0)
    assert None not in picked
    rich = [p for p in picked if world.reference.pages[p].host == "rich.example"]
    assert len(rich) == 2
    shard = world.shard
    assert shard.host_rows[shard.hosts.find("rich.example")]["held_back"] > 0


def test_of_pages_beyond_their_maximum_age_the_latest_goes_first():
    world = World(rules(host_rate=1000.0))
    late = {
        world.add_page(
            "h",
            days,
            START - DAY,
            importance=float(days),
            max_age=30.0 * DAY / days,
            last_crawled_at=START - 30.0 * DAY / days - float(hours) * 3600.0,
        ).page_id: hours
        for days, hours in ((1, 3), (30, 1), (2, 9), (15, 0.01), (3, 0.5))
    }
    picked = world.pick(START + np.arange(1, 7) / 1e3, 100.0)
    assert [late[page_id] for page_id in picked[:5]] == [9, 3, 1, 0.5, 0.01]
    assert picked[5] is None


def test_no_window_is_over_a_hosts_limit():
    rng = np.random.default_rng(5)
    world = random_world(rng, pages=200, hosts=3, host_rate=3.0, timeout=1.0)
    times = {}
    for tick in range(100):
        slots = START + 0.1 * tick + np.sort(rng.random(4)) * 0.1
        for slot, page_id in zip(slots, world.pick(slots, 40.0), strict=True):
            if page_id is not None:
                times.setdefault(world.reference.pages[page_id].host, []).append(slot)
    assert times
    for crawled in times.values():
        for first in range(len(crawled)):
            spans = np.array(crawled[first:]) - crawled[first]
            assert np.all(np.arange(1, spans.size + 1) <= 2 + 3.0 * spans + 1e-3)


def test_news_of_a_host_gives_no_token_to_slots_of_before_that_are_filled_late():
    world = World(rules(host_rate=1.0))
    for number in range(6):
        world.add_page("h", number, START - DAY, last_crawled_at=START - 10 * DAY)
    assert None not in world.pick(START + np.array([0.1, 0.2]), 4.0)
    world.limit_host("h.example", 1.0, None, START + 1.5)
    assert world.pick([START + 0.6], 4.0) == [None]
    assert world.pick([START + 1.6], 4.0) != [None]
    world.limit_host("h.example", 1.0, None, START + 2.0)
    assert world.pick([START + 1.8, START + 2.2], 4.0).count(None) == 1


def test_a_host_that_is_at_rest_is_crawled_in_slots_that_are_filled_late():
    world = World(rules(host_rate=1.0))
    for number in range(6):
        world.add_page("h", number, START - DAY, last_crawled_at=START - 10 * DAY)
    assert None not in world.pick(START + np.array([0.1, 0.2]), 4.0)
    world.limit_host("h.example", 1.0, None, START + 10.0)
    assert world.pick(START + np.array([9.4, 9.6, 9.8]), 4.0).count(None) == 1


def test_new_pages_come_first_by_importance():
    world = World(rules(host_rate=100.0))
    old = world.add_page("h", "old", START, importance=1e6, last_crawled_at=START - 900 * DAY)
    plain = world.add_page("h", "plain", START, importance=1.0)
    weighty = world.add_page("h", "weighty", START, importance=3.0)
    picked = world.pick(START + np.array([0.1, 0.2, 0.3]), 10.0)
    assert picked == [weighty.page_id, plain.page_id, old.page_id]


def test_over_age_comes_before_value():
    world = World(rules(max_age_days=30.0))
    valuable = world.add_page("a", 1, START, importance=1e6, last_crawled_at=START - 20 * DAY)
    aged = world.add_page("b", 1, START, importance=1e-6, last_crawled_at=START - 31 * DAY)
    assert world.pick([START + 0.1, START + 0.2], 10.0) == [aged.page_id, valuable.page_id]


def test_pages_below_the_threshold_wait_unless_budget_is_to_be_spent():
    world = World(rules())
    page = world.add_page("a", 1, START, last_crawled_at=START - DAY)
    value = world.reference.pages[page.page_id].value(START + 1.0, uniform=False)
    assert world.pick([START + 1.0], 1.0, least=value * 1.01) == [None]
    assert world.pick([START + 2.0], 1.0, least=0.0) == [page.page_id]


def test_a_page_without_any_value_is_never_crawled_for_its_value():
    world = World(rules())
    world.add_page("a", 1, START, importance=0.0, last_crawled_at=START - DAY)
    world.add_page("a", 2, START, alpha=0.0, last_crawled_at=START - DAY)
    assert world.pick([START + 1.0, START + 2.0], 1.0) == [None, None]


def test_a_signal_lifts_a_page_over_all_others_at_once():
    rng = np.random.default_rng(2)
    world = random_world(rng, pages=2000, hosts=200)
    quiet = world.add_page(
        "h1", "quiet", START - DAY, importance=1e4, alpha=1e-9, kappa=2.0, gamma=0.01,
        last_crawled_at=START - DAY,
    )  # fmt: skip
    assert quiet.page_id not in world.pick(START + np.arange(1, 5) / 10, 10.0)
    world.signal(quiet.page_id, START + 0.45)
    assert world.pick([START + 0.5], 10.0) == [quiet.page_id]


def test_a_page_that_two_signals_lift_at_once_is_picked_once():
    world = random_world(np.random.default_rng(2), pages=2000, hosts=200, host_rate=1e6)
    world.pick(START + np.arange(1, 5) / 10, 10.0)
    shard = world.shard
    waiting = np.flatnonzero([is_put_off(bucket) for bucket in shard.pages["bucket"][: shard.used]])
    page_ids = np.array([int(shard.lookup.ids[row]) for row in waiting])
    times = np.repeat([START + 0.44, START + 0.45], page_ids.size)
    shard.signals(np.tile(page_ids, 2), times, ["feed"] * times.size)

    picks = shard.selector.select(START + 0.5 + np.arange(200) / 1000, 1000.0, 0.0)

    rows = picks["row"][picks["row"] >= 0]
    assert waiting.size > 100
    assert rows.size == np.unique(rows).size


def test_a_page_that_is_urgent_no_more_is_picked_by_its_value_at_once():
    world = World(rules(timeout=120.0, retry=0.5, host_rate=50.0))
    asked = [world.add_page(f"h{n}", n, START - DAY, importance=3.0 - n) for n in range(2)]
    world.add_page("h2", 2, START - DAY, last_crawled_at=START - 1.0, gamma=1.0, kappa=0.1)
    assert world.pick([START, START + 0.1], 1.0) == [page.page_id for page in asked]
    # Neither is answered in time, and one slot comes: the other page goes on to wait for the next.
    assert world.pick([START + 121.0], 1.0) == [asked[0].page_id]
    world.outcome(asked[1].page_id, START + 121.5)
    world.signal(asked[1].page_id, START + 122.0)
    assert world.pick([START + 123.0], 1.0) == [asked[1].page_id]


def test_a_block_that_is_lifted_early_takes_effect_at_once():
    world = World(rules())
    page = world.add_page("a", 1, START - DAY, last_crawled_at=START - DAY)
    world.limit_host("a.example", None, START + 1000.0, START)
    assert world.pick([START + 1.0], 1.0) == [None]
    world.limit_host("a.example", None, None, START + 2.0)
    assert world.pick([START + 2.5], 1.0) == [page.page_id]


def test_a_limit_of_zero_stops_a_host():
    world = World(rules())
    world.add_page("a", 1, START - DAY, last_crawled_at=START - DAY)
    world.limit_host("a.example", 0.0, None, START)
    assert world.pick([START + 1.0, START + 9.0], 1.0) == [None, None]


def test_an_empty_shard_leaves_its_slots_empty():
    assert World(rules()).pick([START, START + 1.0], 1.0) == [None, None]


@pytest.mark.parametrize("delay", [0.5, 7.0, 100.0])
def test_no_two_crawls_of_a_host_are_nearer_than_its_crawl_delay(delay):
    world = World(rules(host_rate=5.0))
    for number in range(60):
        world.add_page("slow", number, START, last_crawled_at=START - DAY)
    world.shard.take_host_limit(
        HostLimit("slow.example", crawl_delay_seconds=delay, only="crawl-delay"), START
    )
    slots = START + np.arange(1, 1000) * delay / 20.0
    picks = world.shard.selector.select(slots, 1.0, 0.0)
    times = picks["time"][picks["row"] >= 0]
    assert times.size >= 45
    assert np.diff(times).min() >= delay - 1e-6


def test_a_crawl_delay_that_is_first_heard_of_or_grows_holds_for_the_next_crawl():
    world = World(rules(host_rate=5.0))
    for number in range(60):
        world.add_page("slow", number, START, last_crawled_at=START - DAY)

    def times_of_picks(since: float, seconds: float) -> list[float]:
        slots = since + np.arange(1, seconds)
        picks = world.shard.selector.select(slots, 1.0, 0.0)
        return picks["time"][picks["row"] >= 0].tolist()

    def hear_of(delay: float, now: float) -> None:
        heard = HostLimit("slow.example", crawl_delay_seconds=delay, only="crawl-delay")
        world.shard.take_host_limit(heard, now)

    assert times_of_picks(START, 3.0)
    hear_of(20.0, START + 3.0)
    assert times_of_picks(START + 3.0, 50.0) == [START + 23.0, START + 43.0]
    hear_of(20.0, START + 53.0)  # nothing new
    hear_of(40.0, START + 62.0)
    assert times_of_picks(START + 62.0, 100.0) == [START + 102.0, START + 142.0]
    hear_of(10.0, START + 162.0)
    assert times_of_picks(START + 162.0, 20.0)[0] <= START + 172.0


@pytest.mark.slow(1)
def test_a_host_that_is_dead_gets_one_crawl_at_a_time_to_see_whether_it_is_back():
    world = World(rules(host_rate=2.0, timeout=50.0))
    for number in range(400):
        world.add_page("dead", number, START, last_crawled_at=START - DAY)
    shard, now, crawls = world.shard, START, []
    host = shard.hosts.find("dead.example")
    for _ in range(4_000):
        now += 5.0
        picks = shard.selector.select(np.array([now]), 1.0, 0.0)
        if picks["row"][0] >= 0:
            crawls.append(now)
            shard.note_reached(host, -1, now + 0.5, now + 0.5)
    gaps = np.diff(crawls)
    assert len(crawls) < 20
    assert gaps[-4:].min() > 600.0
    # It answers: the next crawl is made at its usual rate.
    shard.note_reached(host, 1, now, now)
    again = shard.selector.select(now + np.arange(1.0, 20.0), 1.0, 0.0)
    assert (again["row"] >= 0).sum() >= 18
