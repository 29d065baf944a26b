"""No more requests of a host are on their way at once than its operators allow."""

import numpy as np
import pytest
from examples import some
from reference_shard import DAY, World, rules
from test_shard_selection import START, random_world, something_happens

from services.scheduler.explain import page_state
from services.scheduler.flow.recovery import restore
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.erasing import erase_host
from services.scheduler.state.open_requests import OpenRequests
from shared.contracts.messages import CrawlRequest, HostLimit, PageUpdate

HOST = "h0.example"
TIMEOUT = 30.0


def one_host(pages=20, most=2, **settings):
    """A world with pages of one host, which has a bound, and of one that has none."""
    world = World(rules(host_rate=1000.0, timeout=TIMEOUT, retry=1.0, **settings))
    for number in range(pages):
        world.add_page("h0", number, START - DAY, last_crawled_at=START - 2 * DAY)
    world.add_page("other", 0, START - DAY, last_crawled_at=START - 2 * DAY)
    if most:
        world.bound_open(HOST, most, START)
    return world


def of_host(world, picked):
    """The picked pages of the host with the bound."""
    hosts = {identity.page_id: identity.host for identity in world.identities}
    return [page_id for page_id in picked if page_id is not None and hosts[page_id] == HOST]


def pick(world, at, slots=8):
    return of_host(world, world.pick(at + np.linspace(0.0, 0.1, slots), 80.0))


def test_only_as_many_are_asked_for_as_may_be_open():
    world = one_host()
    first = pick(world, START + 1)
    assert len(first) == 2
    assert pick(world, START + 2) == []
    world.outcome(first[0], START + 2.5)
    assert len(pick(world, START + 3)) == 1
    assert pick(world, START + 4) == []


def test_a_bound_that_was_there_before_the_shard_was_loaded_holds_and_answers_make_room():
    world = one_host()
    # As a shard is loaded: its hosts have their rules, and nothing was said of any since then.
    world.shard.open_requests = OpenRequests(world.shard)
    first = pick(world, START + 1)
    assert len(first) == 2
    assert pick(world, START + 2) == []
    world.outcome(first[0], START + 2.5)
    assert len(pick(world, START + 3)) == 1


def test_one_that_nobody_answers_is_open_until_its_time_out():
    world = one_host()
    assert len(pick(world, START + 1)) == 2
    assert pick(world, START + TIMEOUT) == []
    assert len(pick(world, START + TIMEOUT + 2)) == 2


def test_what_was_on_its_way_when_the_bound_came_counts():
    world = one_host(most=0)
    first = pick(world, START + 1, slots=6)
    assert len(first) >= 5
    world.bound_open(HOST, 3, START + 2)
    for page_id in first[:2]:
        world.outcome(page_id, START + 3)
    assert pick(world, START + 4) == []
    for page_id in first[2:]:
        world.outcome(page_id, START + 5)
    assert len(pick(world, START + 6)) == 3


def test_a_bound_that_is_raised_or_lifted_holds_at_once():
    world = one_host(most=1)
    assert len(pick(world, START + 1)) == 1
    world.bound_open(HOST, 4, START + 2)
    assert len(pick(world, START + 3)) == 3
    world.bound_open(HOST, None, START + 4)
    assert len(pick(world, START + 5)) == 8


def test_requests_that_are_not_sent_after_all_are_not_open():
    world = one_host()
    shard = world.shard
    picks = shard.select(START + 1 + np.linspace(0.0, 0.1, 8), 80.0, 0.0)
    rows = picks["row"][picks["row"] >= 0]
    assert shard.open_requests.count(shard.hosts.find(HOST)) == 2
    shard.take_back(rows)
    assert shard.open_requests.count(shard.hosts.find(HOST)) == 0
    again = shard.select(START + 2 + np.linspace(0.0, 0.1, 8), 80.0, 0.0)
    assert set(again["row"].tolist()) == set(picks["row"].tolist())


@pytest.mark.parametrize("is_known", [True, False])
def test_what_was_asked_for_before_a_restart_counts(is_known):
    world = one_host()
    shard = make_shard(0, world.shard.rules)
    shard.take_host_limit(HostLimit(HOST, max_open_requests=2, only="open"), START)
    pages = [identity for identity in world.identities if identity.host == HOST]
    asked = [
        CrawlRequest(
            f"0-0-{n}", page.page_id, page.url, HOST, START, START + TIMEOUT, 1, 0, "value"
        )
        for n, page in enumerate(pages[:2])
    ]
    if is_known:
        for page in pages:
            shard.upsert(page, PageUpdate("upsert", page.url), START - DAY)
    restore(shard, asked)
    for page in pages:
        shard.upsert(page, PageUpdate("upsert", page.url), START - DAY)
    slots = np.linspace(0.0, 0.1, 8)
    assert (shard.select(START + 1 + slots, 80.0, 0.0)["row"] < 0).all()
    later = shard.select(START + TIMEOUT + 1 + slots, 80.0, 0.0)
    assert (later["row"] >= 0).sum() == 2


def test_what_was_answered_before_a_restart_is_not_open():
    world = one_host()
    shard = make_shard(0, world.shard.rules)
    shard.take_host_limit(HostLimit(HOST, max_open_requests=2, only="open"), START)
    pages = [identity for identity in world.identities if identity.host == HOST]
    for page in pages:
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=START + 1), START - DAY)
    asked = [
        CrawlRequest(
            f"0-0-{n}", page.page_id, page.url, HOST, START, START + TIMEOUT, 1, 0, "value"
        )
        for n, page in enumerate(pages[:3])
    ]
    assert restore(shard, asked) == 0
    picks = shard.select(START + DAY + np.linspace(0.0, 0.1, 8), 80.0, 0.0)
    assert (picks["row"] >= 0).sum() == 2


def test_an_erased_host_has_no_bound():
    world = one_host(most=1)
    assert len(pick(world, START + 1)) == 1
    shard = world.shard
    erase_host(shard, HOST, START + 1)
    assert shard.open_requests.count(shard.hosts.find(HOST)) == 0
    for page in world.identities:
        shard.upsert(page, PageUpdate("upsert", page.url), START + 1)
    shard.open_requests.time_out(START + 2 * TIMEOUT)
    picks = shard.select(START + 2 + np.linspace(0.0, 0.1, 8), 80.0, 0.0)
    assert (picks["row"] >= 0).all()


def test_a_bound_host_takes_as_many_crawls_as_it_answers():
    world = one_host(most=2)
    shard = world.shard
    host = shard.hosts.find(HOST)
    assert shard.open_requests.crawl_rates()[host] == 1000.0
    now = START + 1
    for _ in range(60):
        for page_id in pick(world, now):
            world.outcome(page_id, now + 4.0)
        now += 5.0
    rates = shard.open_requests.crawl_rates()
    assert rates[host] == pytest.approx(2 / 4.0, rel=0.05)
    assert np.delete(rates, host) == pytest.approx(1000.0)
    world.bound_open(HOST, None, now)
    assert shard.open_requests.crawl_rates()[host] == 1000.0


def test_a_bound_host_that_does_not_answer_takes_next_to_none():
    world = one_host(pages=200, most=1)
    host = world.shard.hosts.find(HOST)
    now = START + 1
    for _ in range(60):
        pick(world, now)
        now += TIMEOUT + 1
    assert world.shard.open_requests.crawl_rates()[host] == pytest.approx(1 / TIMEOUT, rel=0.05)


def test_it_is_said_how_many_are_open():
    world = one_host()
    pick(world, START + 1)
    page = next(identity for identity in world.identities if identity.host == HOST)
    of_host = page_state(world.shard, page, START + 1, 0.0)["host"]
    assert (of_host["max_open_requests"], of_host["open_requests"]) == (2, 2)
    assert of_host["usable_from"] is None


@pytest.mark.parametrize("seed", some(range(12), 4))
def test_picks_are_the_most_urgent_of_hosts_that_may_have_one_more(seed):
    rng = np.random.default_rng(seed)
    world = random_world(rng, host_rate=float(rng.choice([2.0, 50.0])), timeout=8.0, retry=5.0)
    names = sorted(world.reference.hosts)
    for name in names[: rng.integers(1, len(names) + 1)]:
        world.bound_open(name, int(rng.integers(1, 4)), START)
    rate = float(rng.choice([2.0, 20.0, 100.0]))
    now = START
    for _ in range(40):
        slots = now + np.sort(rng.random(rng.integers(1, 8))) / rate
        now = float(slots[-1]) + 1e-6
        picked = world.pick(slots, rate)
        something_happens(rng, world, now, picked)
        if rng.random() < 0.2:
            most = None if rng.random() < 0.3 else int(rng.integers(1, 5))
            world.bound_open(str(rng.choice(names)), most, now)
        if rng.random() < 0.1:
            now += 10.0
