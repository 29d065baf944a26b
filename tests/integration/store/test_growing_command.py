"""`freshet shards grow`, as people call it."""

import json
import sys
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from holding_shards import GROWN, PAGES, alone, have_taken, quiet, schedulers
from store_contents import SHARDS

from services.cli import group_limits, growth, kafka
from services.cli.main import main
from shared.contracts.layout import Layout
from shared.store.growth import begin_growth
from shared.store.layout import fetch_layout
from shared.store.splitting import SplitFailed, prepare, split_all


@pytest.fixture
def freshet(filled, monkeypatch):
    """Calls of the command on this database, with a broker that gets its partitions."""
    grown = []

    async def add_partitions(_settings, shards):
        # The database has room first.
        assert fetch_layout(filled).shards == shards
        grown.append(shards)
        return ["page-signals"]

    async def require_partitions(_settings, shards):
        assert shards % fetch_layout(filled).shards == 0

    async def passes(*_, **_options):
        """No group has a limit, and all is applied."""

    module = SimpleNamespace(add_partitions=add_partitions, require_partitions=require_partitions)
    monkeypatch.setitem(sys.modules, "shared.runtime.growing", module)
    monkeypatch.setattr(kafka, "require_broker", quiet)
    monkeypatch.setattr(group_limits, "require_room", passes)
    for check in ("require_applied", "require_order"):
        monkeypatch.setattr(growth, check, passes)
    monkeypatch.setenv("DATABASE_URL", filled)

    def call(*arguments, **options):
        return CliRunner().invoke(main, ["shards", *arguments], **options)

    call.grown = grown
    return call


def test_the_command_grows_and_shows(filled, freshet):
    before = json.loads(freshet("show", "--json").stdout)
    assert (before["shards"], before["grown_from"], before["is_growing"]) == (SHARDS, SHARDS, False)
    assert [row["pages"] for row in before["states"]] == [PAGES] * SHARDS
    assert {row["state"] for row in before["states"]} == {None}
    with schedulers(filled):
        grown = freshet("grow", str(GROWN), "--known-seconds", "0", "--yes", "--json")
    assert grown.exit_code == 0
    answer = json.loads(grown.stdout)
    assert (answer["shards"], answer["shards_split"]) == (GROWN, SHARDS)
    assert answer["topics"] == ["page-signals"]
    assert "shard 0 is being split" in grown.stderr
    after = json.loads(freshet("show", "--json").stdout)
    assert answer["pages_moved"] == sum(row["pages"] for row in after["states"][SHARDS:])
    assert {row["state"] for row in after["states"]} == {"split"}
    assert f"grown from  {SHARDS}" in freshet("show").stdout
    assert freshet.grown == [GROWN]


def test_the_command_fails_in_words_and_may_be_called_again(filled, freshet):
    have_taken(filled, range(SHARDS, GROWN))
    failed = freshet("grow", str(GROWN), "--known-seconds", "0", "--wait-seconds", "0.5", "--yes")
    assert failed.exit_code == 1
    assert "shard 0 is not held yet" in failed.output
    wrong = freshet("grow", str(GROWN + 1))
    assert wrong.exit_code == 2
    assert f"let `freshet shards grow {GROWN}` end first" in wrong.output
    shown = json.loads(freshet("show", "--json").stdout)
    assert shown["is_growing"]
    assert shown["states"][0]["state"] == "asked"
    again = freshet(
        "grow", str(GROWN), "--known-seconds", "0", "--wait-seconds", "0", "--unattended"
    )
    assert again.exit_code == 0
    assert freshet.grown == [GROWN, GROWN]
    assert freshet("grow", str(GROWN), "--known-seconds", "0").exit_code == 0


def test_the_command_asks_once_as_there_is_no_way_back(filled, freshet):
    at_once = ["--known-seconds", "0", "--wait-seconds", "0", "--unattended"]
    for nobody_or_no in ("", "n\n"):
        refused = freshet("grow", str(GROWN), *at_once, input=nobody_or_no)
        assert refused.exit_code == 1
        assert f"Let {SHARDS} shards become {GROWN}? There is no way back" in refused.stderr
        assert fetch_layout(filled) == Layout.of(SHARDS)
    assert freshet.grown == []

    begin_growth(filled, GROWN)  # as by a command that was killed
    goes_on = freshet("grow", str(GROWN), *at_once)
    assert goes_on.exit_code == 0, goes_on.output
    assert "become" not in goes_on.output
    assert freshet("grow", str(2 * GROWN), *at_once, input="y\n").exit_code == 0
    assert fetch_layout(filled).shards == 2 * GROWN


def test_the_command_can_only_say_what_it_would_do(filled, freshet):
    def would(number):
        answer = freshet("grow", str(number), "--dry-run", "--yes", "--json")
        assert answer.exit_code == 0, answer.output
        return tuple(json.loads(answer.stdout).values())

    assert would(GROWN) == (SHARDS, GROWN, SHARDS)
    assert fetch_layout(filled) == Layout.of(SHARDS)
    layout = prepare(alone(filled), GROWN)
    with schedulers(filled, [0]), pytest.raises(SplitFailed):
        split_all(alone(filled), layout, quiet, wait_seconds=0.5)
    assert would(GROWN) == (SHARDS, GROWN, SHARDS - 1)
    split_all(alone(filled), layout, quiet, wait_seconds=0.0, unattended=True)
    assert would(GROWN) == (SHARDS, GROWN, 0)
    assert would(3 * GROWN) == (GROWN, 3 * GROWN, GROWN)
    assert freshet.grown == []
