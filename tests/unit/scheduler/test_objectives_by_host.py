"""Pages that are crawled for something else than freshness, by host: picks, demand, explanation."""

import numpy as np
import pytest
from reference_shard import DAY, World, rules
from test_shard_selection import START, random_world, something_happens

from services.scheduler.demand.tally import Tally, demand_of
from services.scheduler.explain import page_state
from services.scheduler.warm_up import warm_up
from shared.contracts.objectives import HARMONIC
from shared.policy.compiled import LateKernels
from shared.policy.objectives import objective_threshold_scalar, objective_values
from shared.rules.host_objectives import HostObjectives

MIXED = {"default": {"age": 0.3}, "h0.example": "harmonic", "h1.example": "freshness"}


@pytest.mark.parametrize("objectives", [MIXED, {"default": "harmonic"}, {"h2.example": {"age": 1}}])
@pytest.mark.parametrize("seed", range(2))
def test_picks_are_the_most_urgent_whatever_pages_are_crawled_for(seed, objectives):
    rng = np.random.default_rng(seed)
    floor = 0.05 * seed
    world = random_world(rng, pages=120, host_rate=2.0, least_value=floor, objectives=objectives)
    now = START
    for _ in range(25):
        slots = now + np.sort(rng.random(rng.integers(1, 6)))
        now = float(slots[-1]) + 1e-6
        something_happens(rng, world, now, world.pick(slots, 5.0, floor))
    assert world.shard.selector.uncertain_picks == 0


def test_more_hosts_than_at_first_keep_what_their_pages_are_crawled_for():
    world = World(rules(host_rate=50.0, objectives={"default": "harmonic"}))
    for number in range(150):
        state = {"alpha": 0.01 * (1 + number % 7), "last_crawled_at": START - number * DAY}
        world.add_page(f"h{number}", number, START - 200 * DAY, **state)
        if number % 40 == 0:
            world.pick([START + number], 1.0)
    assert (world.shard.hosts.objectives[:150] == HARMONIC).all()
    for second in range(151, 170):
        assert world.pick([START + second], 1.0) != [None]


def test_demand_is_that_of_each_hosts_objective():
    rng = np.random.default_rng(5)
    world = random_world(rng, pages=60, hosts=4, host_rate=50.0, objectives=MIXED)
    shard = world.shard
    demand = demand_of(shard, 0.0)
    pages, codes = shard.pages[: shard.used], shard.hosts.objectives
    expected = np.zeros(demand.thresholds.size)
    for page in pages:
        parameters = (float(page[name]) for name in ("alpha", "kappa", "gamma"))
        alpha, kappa, gamma = parameters
        for point, threshold in enumerate(demand.thresholds):
            target = float(threshold / page["importance"])
            code = int(codes[page["host"]])
            _, psi = objective_threshold_scalar(code, alpha, kappa, gamma, target)
            expected[point] += 1.0 / psi
    assert demand.unlimited() * DAY == pytest.approx(expected, rel=0.03)
    assert demand.unlimited()[-1] > 0.0  # nobody is given up, up to the top of the grid


def test_a_host_that_came_while_demand_was_summed_counts_the_next_time():
    world = World(rules(objectives={"default": "harmonic"}))
    world.add_page("a", 1, START, alpha=0.1, last_crawled_at=START)
    tally = Tally(world.shard, 0.0, None)
    for number in range(70):
        world.add_page(f"later{number}", 1, START, alpha=0.1, last_crawled_at=START)
    while (pages := tally.copy()) is not None:
        tally.add(pages)
    assert tally.finish().unlimited()[0] > 0.0


@pytest.mark.parametrize("host", ["h0", "h1", "other"])
def test_the_explanation_is_of_the_hosts_objective(host):
    world = World(rules(objectives=MIXED))
    state = {"alpha": 0.1, "kappa": 0.8, "gamma": 0.3, "signals": 1}
    page = world.add_page(host, 1, START - DAY, last_crawled_at=START, **state)
    told = page_state(world.shard, page, START + DAY, 2.0)
    names = {"h0": "harmonic", "h1": "freshness", "other": "age 0.3"}
    assert told["objective"] == names[host]
    due = (told["due_at"] - START) / DAY
    code = int(world.shard.hosts.objectives[0])
    parameters = (told[name] for name in ("unsignalled_change_rate", "signal_evidence"))
    at = objective_values(code, 1.0, *parameters, told["signal_rate"], due, 1.0)
    assert at[0] == pytest.approx(2.0, rel=1e-6)


def test_what_other_objectives_need_is_compiled_before_the_first_tick():
    # The world, and a reference to its picks, call kernels from Python that no worker does.
    world = random_world(np.random.default_rng(1), pages=40, objectives=MIXED)
    warm_up(HostObjectives(MIXED))
    late = LateKernels()
    world.shard.select(np.array([START, START + 1.0]), 1.0, 0.0)
    demand_of(world.shard, 1.0)
    assert late.names() == []
