"""Costs are found again in machines that were made of them."""

import click
import pytest

from services.bench.planet_figures import LARGEST_IMAGE, costs
from services.bench.planet_loop import Machine, Totals, Window, require_held
from services.plan.coefficients import KNOWN, MESSAGES

SHARDS = 4
SIGNALS = 80.0
COST = {
    "scheduler_base_bytes": 3e8,
    "scheduler_page_bytes": 440.0,
    "estimator_base_bytes": 2e8,
    "estimator_page_bytes": 600.0,
    "scheduler_base_cores": 0.02,
    "scheduler_cores_a_page": 1e-8,
    "scheduler_cores_a_crawl": 7e-5,
    "scheduler_cores_a_signal": 1e-5,
    "estimator_base_cores": 0.03,
    "estimator_cores_a_page": 0.0,
    "estimator_cores_a_crawl": 3e-5,
    "estimator_cores_a_signal": 2e-5,
    "postgres_base_cores": 0.01,
    "postgres_cores_a_crawl": 4e-5,
    "postgres_cores_a_signal": 3e-5,
    "ingester_base_cores": 0.02,
    "ingester_cores_a_signal": 2e-5,
    "coordinator_base_cores": 0.04,
    "log_crawl_bytes": 700.0,
    "log_signal_bytes": 300.0,
    "log_block_bytes": 7000.0,
    "scheduler_start_seconds": 4.0,
    "scheduler_load_seconds_a_page": 3e-6,
    "estimator_start_seconds": 5.0,
    "estimator_load_seconds_a_page": 5e-6,
    "postgres_load_seconds_a_page": 2e-6,
    "page_parameters_records_a_crawl": 0.25,
    "page_parameters_records_a_signal": 0.5,
    "page_signals_records_a_signal": 0.75,
    "demand_curves_records_a_shard": 1.0,
    "page_parameters_bytes": 90.0,
}


def cost(name):
    return COST.get(name, 0.0)


def window(pages, crawls, signals, images=0.0):
    cores = {
        name: cost(f"{name}_base_cores")
        + pages * cost(f"{name}_cores_a_page")
        + crawls * cost(f"{name}_cores_a_crawl")
        + signals * cost(f"{name}_cores_a_signal")
        for name in ("scheduler", "estimator", "ingester", "coordinator", "postgres")
    }
    causes = {"crawl": crawls, "signal": signals, "shard": SHARDS}
    records = {
        topic: sum(
            number * cost(f"{topic.replace('-', '_')}_records_a_{cause}")
            for cause, number in causes.items()
        )
        for topic in MESSAGES
    }
    records |= {"crawl-requests": crawls, "signals": signals}
    sizes = {t: n * cost(f"{t.replace('-', '_')}_bytes") for t, n in records.items()}
    log = crawls * 700.0 + signals * 300.0 + images * 7000.0
    return Window(cores, records, sizes, log, images)


def machine(pages, signals=SIGNALS, images=(50.0, 5.0, 9.0)):
    fresh, late, more = images
    served = cost("postgres_load_seconds_a_page")
    start = {"postgres": 1.0 + pages * served} | {
        name: cost(f"{name}_start_seconds") + pages * (cost(f"{name}_load_seconds_a_page") - served)
        for name in ("scheduler", "estimator")
    }
    memory = {
        name: cost(f"{name}_base_bytes") + pages * cost(f"{name}_page_bytes")
        for name in ("scheduler", "estimator", "ingester", "coordinator", "postgres")
    }
    return Machine(
        pages,
        SHARDS,
        {},
        start,
        memory,
        windows={
            "after a checkpoint": window(pages, 160.0, signals, fresh),
            "own": window(pages, 160.0, signals, late),
            "more": window(pages, 1000.0, signals, more),
            "none": window(pages, 1.6, 0.0),
        },
    )


def test_costs_are_found_again():
    found = costs(machine(40_000, 4 * SIGNALS), machine(300_000))
    assert set(found) <= set(KNOWN)
    for name, value in COST.items():
        assert found[name] == pytest.approx(value, rel=2e-3, abs=1e-12), name


def test_what_comes_out_below_nothing_is_nothing():
    # The small machine used more than the large one: something else ran beside it.
    found = costs(machine(300_001, 4 * SIGNALS), machine(300_000))
    assert min(found.values()) >= 0.0


def test_images_that_say_nothing_are_taken_to_be_whole_blocks():
    found = costs(machine(40_000, 4 * SIGNALS), machine(300_000, images=(6.0, 5.0, 5.0)))
    assert found["log_block_bytes"] == pytest.approx(LARGEST_IMAGE, rel=1e-3)


def test_a_machine_that_is_too_busy_is_not_measured():
    require_held(window(1000, crawls=96.0, signals=0.0), 100.0)
    with pytest.raises(click.ClickException, match="too busy"):
        require_held(window(1000, crawls=94.0, signals=0.0), 100.0)


def test_a_window_is_a_second_of_what_lies_between_two_moments():
    first = Totals(10.0, {"scheduler": 5.0}, {"signals": 100}, {"signals": 1000}, 50.0, 1.0)
    last = Totals(14.0, {"scheduler": 7.0}, {"signals": 180}, {"signals": 1800}, 450.0, 3.0)
    found = Window.between(first, last)
    assert found == Window({"scheduler": 0.5}, {"signals": 20.0}, {"signals": 200.0}, 100.0, 0.5)
