"""`freshet plan`: what it says is enough, also without a replica, and names what it rests on."""

import json
import math
import shlex
from pathlib import Path

import click
import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cli import sizing
from services.cli.main import main
from services.cli.sizing import GI, TooLarge, Wanted, plan, read_measured

CHART = Path(__file__).parents[3] / "deploy/chart"
COST = {name: coefficient.value for name, coefficient in read_measured().items()}


def wanted(pages=1e9, crawls=1e4, memory=32.0):
    return Wanted(pages, crawls, crawls / 2, memory * GI, 180.0, 3)


def run(*arguments):
    return CliRunner().invoke(main, ["plan", *arguments])


@settings(max_examples=200, deadline=None)
@given(st.floats(1, 1.6e10), st.floats(0.01, 1e6), st.floats(8, 512))
def test_a_replica_may_be_away_and_the_others_hold_all_pages(pages, crawls, memory):
    asked = wanted(pages, crawls, memory)
    try:
        sizes = plan(asked, COST)
    except TooLarge:
        return
    for name in ("scheduler", "estimator"):
        worker = sizes.workers[name]
        assert 1 <= worker.replicas <= sizes.shards
        serving = max(worker.replicas - 1, 1)
        shards = math.ceil(sizes.shards / serving)
        needed = (
            COST[f"{name}_base_bytes"]
            + shards * (pages / sizes.shards) * COST[f"{name}_page_bytes"]
        )
        assert needed < worker.memory_bytes <= asked.memory_bytes * (1 + 1e-9)
        if worker.replicas < sizes.shards:
            assert crawls * COST[f"{name}_cores_a_crawl"] <= serving * worker.cores
    assert pages / sizes.shards <= sizing.MOST_PAGES_A_SHARD
    assert sizes.workers["ingester"].replicas >= 2
    assert sizes.workers["coordinator"].replicas == 2


def test_a_billion_pages_are_a_plan():
    sizes = plan(wanted(), COST)
    assert sizes.shards == 256
    # By hand: 1e9 pages at 440 bytes, a quarter more, over 32 GiB a replica.
    least = 1e9 * 440 * 1.25 / (32 * GI)
    assert least < sizes.workers["scheduler"].replicas < 1.3 * least + 2


def test_more_of_anything_never_needs_less():
    small, large = plan(wanted(1e8, 1e3), COST), plan(wanted(1e9, 1e4), COST)
    assert small.shards <= large.shards
    for name in small.workers:
        assert small.workers[name].replicas <= large.workers[name].replicas
    for part, size in small.postgres_disk_bytes.items():
        assert size < large.postgres_disk_bytes[part]
    assert small.kafka_disk_bytes < large.kafka_disk_bytes


def test_what_does_not_fit_is_said():
    with pytest.raises(TooLarge, match="4096 at most"):
        plan(wanted(pages=1e11), COST)
    with pytest.raises(TooLarge, match="--memory"):
        plan(wanted(pages=1e9, memory=1.0), COST)
    refused = run("--pages", "1e11", "--crawls-per-second", "1")
    assert refused.exit_code == 2
    assert "4096 at most" in refused.output


def test_the_values_are_the_charts():
    answer = run("--pages", "1e9", "--crawls-per-second", "1e4", "--json")
    assert answer.exit_code == 0, answer.output
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    planned = json.loads(answer.stdout)["values"]
    assert values["shards"] != planned["shards"]
    values["shards"] = planned["shards"]
    for name, worker in planned["workers"].items():
        assert worker["replicas"] >= 2
        values["workers"][name] |= worker
    jsonschema.validate(values, json.loads((CHART / "values.schema.json").read_text()))

    shown = run("--pages", "1e9", "--crawls-per-second", "1e4").stdout
    text = shown.partition("# values.yaml\n")[2].partition("added up from:")[0]
    assert yaml.safe_load(text) == planned


def test_every_coefficient_is_used_and_names_a_command_that_there_is():
    for name, coefficient in read_measured().items():
        assert coefficient.value > 0
        assert coefficient.what
        program, bench, benchmark, *options = shlex.split(coefficient.command)
        assert (program, bench) == ("freshet", "bench")
        group = main.get_command(click.Context(main), "bench")
        command = group.get_command(click.Context(group), benchmark)
        known = {option for parameter in command.params for option in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= known, name
        halved = COST | {name: coefficient.value / 2}
        asked = wanted(1e9, 1e6)
        assert plan(asked, halved) != plan(asked, COST), f"{name} changes nothing"


def test_coefficients_of_ones_own_count():
    arguments = ("--pages", "1e9", "--crawls-per-second", "1e4", "--json")
    as_measured = json.loads(run(*arguments).stdout)
    own = json.loads(run(*arguments, "--coefficient", "scheduler_page_bytes=220").stdout)
    assert own["workers"]["scheduler"]["replicas"] < as_measured["workers"]["scheduler"]["replicas"]
    assert {c["name"]: c["value"] for c in own["coefficients"]}["scheduler_page_bytes"] == 220
    for wrong in ("scheduler_page_bytes", "no_such=1", "scheduler_page_bytes=-1"):
        assert run(*arguments, "--coefficient", wrong).exit_code == 2
