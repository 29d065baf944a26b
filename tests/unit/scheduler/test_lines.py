"""Hosts that wait for the same groups stand in line: the best is next, and few are looked at."""

import numpy as np
import pytest
from examples import some
from reference_groups import shares_of
from reference_shard import DAY, World, rules
from test_shard_selection import START

RATE = 10.0
EVERYTHING = {0: 1.0}


def crowded_world(seed, hosts=40, pages=3, **settings):
    """Many hosts of one address, whose pages grow at very different speeds."""
    rng = np.random.default_rng(seed)
    world = World(rules(**({"host_rate": 1000.0, "timeout": 1e9} | settings)))
    for number in range(hosts):
        for page in range(pages):
            world.add_page(
                f"h{number}",
                page,
                START - 100 * DAY,
                importance=float(rng.lognormal(0, 1)),
                alpha=float(rng.lognormal(2, 2)),
                last_crawled_at=START - float(rng.exponential(0.05)) * DAY,
            )
        world.name_group(f"h{number}.example", "203.0.113.7")
    return world, rng


@pytest.mark.parametrize("seed", some(range(6), 2))
def test_the_next_of_a_line_is_the_best_whatever_happens_to_those_who_wait(seed):
    world, rng = crowded_world(seed)
    world.limit_groups(shares_of("203.0.113.7", 1.0, EVERYTHING, START))
    now = signalled_at = START + 1.0
    signalled = set()
    for turn in range(80):
        picked = world.pick(now + np.arange(1, 6) / RATE, RATE)
        now += float(rng.choice([0.5, 0.5, 0.5, 40.0, 3000.0])) + 0.01
        signalled.difference_update(*[signalled] * (now - signalled_at > 200.0))
        for page_id in picked:
            if page_id is not None:
                world.outcome(page_id, now - 0.005)
        for _ in range(rng.integers(0, 4)):
            # Of each host one at a time: signals that come together are worth less together.
            page = world.identities[rng.integers(len(world.identities))]
            if page.host not in signalled:
                world.signal(page.page_id, now)
                signalled.add(page.host)
                signalled_at = now
        if turn % 9 == 0:
            world.add_page(f"h{turn % 40}", f"new-{turn}", now, importance=float(rng.random()))
        if turn % 11 == 0:
            host = f"h{rng.integers(40)}.example"
            world.limit_host(host, float(rng.choice([0.01, 1000.0])), None, now)
    host_rows = world.shard.host_rows
    assert (host_rows["is_parked"] == 2).sum() > 20


def test_a_slot_of_a_group_looks_at_few_of_the_hosts_that_wait():
    world, _ = crowded_world(1, hosts=300)
    world.limit_groups(shares_of("203.0.113.7", 1.0, EVERYTHING, START))
    shard, changed, slots = world.shard, 0, 0
    for turn in range(60):
        before = shard.host_rows[["bound", "expires_at", "held_back"]].copy()
        shard.groups.follow(world.limits, RATE, START + turn)
        picks = shard.select(START + turn + np.arange(1, 11) / RATE, RATE, 0.0)
        if turn >= 30:
            changed += int((before != shard.host_rows[["bound", "expires_at", "held_back"]]).sum())
            slots += int((picks["row"] >= 0).sum())
    assert (shard.host_rows["is_parked"] == 2).sum() > 250
    assert slots >= 29
    assert changed < 25 * slots
