"""Simulated hosts and crawlers behave as the plan says: silent, slow, dead, in storms and waves."""

from collections import Counter

import numpy as np
import pytest
from click.testing import CliRunner

from services.cli.commands.run import command, make_options
from services.world.hosts import SimulatedHosts
from services.world.pages import make_pages
from services.world.plan import FleetPlan

HOSTS = np.repeat(np.arange(400), 10)
PAGES = np.arange(HOSTS.size)


def test_hosts_that_nothing_is_said_of_are_all_alike_and_well():
    hosts = SimulatedHosts(FleetPlan(), HOSTS, seed=1)
    assert set(hosts.latencies(PAGES)) == {FleetPlan().latency_seconds}
    assert not hosts.is_silent(PAGES).any()
    assert not np.any(hosts.troubles(PAGES, 3.7))


def test_some_pages_are_silent_and_some_hosts_dead_for_ever():
    hosts = SimulatedHosts(FleetPlan(silent_share=0.1, dead_hosts_share=0.2), HOSTS, seed=1)
    silent, dead = hosts.is_silent(PAGES), hosts.troubles(PAGES, 0.0)[0]
    assert silent.mean() == pytest.approx(0.1, abs=0.02)
    assert dead.mean() == pytest.approx(0.2, abs=0.06)
    assert all(np.unique(dead[host == HOSTS]).size == 1 for host in range(400))
    assert (hosts.troubles(PAGES, 99.0)[0] == dead).all()


def test_hosts_differ_in_how_fast_they_are():
    hosts = SimulatedHosts(FleetPlan(latency_seconds=0.5, latency_spread=1.0), HOSTS, seed=1)
    seconds = hosts.latencies(PAGES)
    assert np.median(seconds) == pytest.approx(0.5, rel=0.2)
    assert np.log(seconds).std() == pytest.approx(1.0, rel=0.15)
    assert np.unique(seconds).size == 400


@pytest.mark.parametrize(("name", "index"), [("storm", 1), ("wave", 2)])
def test_troubles_come_and_go_host_by_host(name, index):
    plan = FleetPlan(**{f"{name}_share": 0.25, f"{name}_hours": 6.0})
    hosts = SimulatedHosts(plan, HOSTS, seed=1)
    hours = np.arange(0.0, 480.0, 0.5)
    on = np.array([hosts.troubles(PAGES, hour / 24.0)[index][::10] for hour in hours])
    assert on.mean() == pytest.approx(0.25, abs=0.02)
    begins = np.count_nonzero(on[1:] & ~on[:-1])
    assert on.sum() / 2 / begins == pytest.approx(6.0, rel=0.1)
    assert 0.15 < on.mean(axis=1).min() <= on.mean(axis=1).max() < 0.35


def test_pages_of_one_host_have_its_number():
    pages = make_pages([f"https://h{n % 3}.example/{n}" for n in range(9)], np.ones(9))
    numbers = pages.host_numbers.tolist()
    assert Counter(numbers) == {0: 3, 1: 3, 2: 3}
    assert numbers[0] == numbers[3] != numbers[1]


GIVEN = {option.name: None for option in command.params} | {
    "world": "generated",
    "seed": 3,
    "steps": (),
}


def test_a_run_is_told_of_its_fleet():
    plan = make_options(**GIVEN | {"fleet_capacity": 50.0, "fleet_silent": 0.1}).fleet
    assert plan == FleetPlan(crawls_per_second=50.0, silent_share=0.1)
    assert make_options(**GIVEN).fleet == FleetPlan()


def test_every_trouble_has_an_option():
    text = CliRunner().invoke(command, ["--help"]).output
    for name in ("capacity", "silent", "latency-spread", "dead-hosts", "storms", "waves"):
        assert f"--fleet-{name}" in text
