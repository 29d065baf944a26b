"""Classes with shares whose pages wait for the same slow host: each gets some of its crawls."""

from collections import Counter

import numpy as np
import pytest
from reference_shard import DAY, NEVER, World
from test_page_classes import classed, counted, say
from test_shard_selection import START

from shared.contracts.messages import HostLimit


def crawls_of_busy_host(world, rate, seconds):
    """How many of each class, of all that its limit allows, at two slots a second."""
    world.shard.take_host_limit(HostLimit("busy.example", rate), START)
    busy, found = world.shard.hosts.intern("busy.example"), Counter()
    for second in range(seconds):
        picks = world.shard.select(START + second + np.array([0.25, 0.75]), 2.0, 0.0)
        found += counted(world, picks[world.shard.pages["host"][picks["row"]] == busy])
    assert abs(found.total() - seconds * rate) <= 2
    return found


@pytest.mark.parametrize("rate", [0.25, 0.5, 1.0])
def test_a_host_that_is_free_in_step_with_the_slots_shares_its_crawls_among_classes(rate):
    """What is new there waits for slots that are no class's, and not by value: a fifth of all."""
    rules_of_classes = classed({"news": (1.0, 0.3), "partner": (1.0, 0.3)}, {"value": 0.5})
    world = World(rules_of_classes)
    for host, importance in (("busy", 100.0), ("other", 1.0)):
        for number in range(300):
            for name in ("news", "partner", None):
                crawled_at = START - 20 * DAY - number if name else NEVER
                page = world.add_page(
                    host,
                    f"{name}{number}",
                    START - DAY,
                    importance=importance,
                    last_crawled_at=crawled_at,
                )
                say(world, page, START - DAY, page_class=name)
    found = crawls_of_busy_host(world, rate, seconds=200)
    for name, share in (("news", 0.3), ("partner", 0.3), (None, 0.2)):
        assert found[name] >= 0.5 * share * found.total() - 1, found


@pytest.mark.parametrize("rate", [0.2, 0.5, 1.1])
def test_a_class_of_which_all_pages_are_of_a_slow_host_leaves_crawls_of_it_to_the_others(rate):
    world = World(classed({"news": (1.0, 0.3), "partner": (1.0, 0.3)}))
    for number in range(900):
        for host, name in (("busy", "news"), ("busy", "partner"), ("busy", None), ("other", None)):
            worth = 1.0 if host == "other" else 100.0 if name else 200.0
            page = world.add_page(host, f"{name}{number}", START - DAY, importance=worth)
            say(world, page, START - DAY, page_class=name)
    found = crawls_of_busy_host(world, rate, seconds=400)
    assert all(found[name] >= 0.08 * found.total() for name in ("news", "partner", None)), found
