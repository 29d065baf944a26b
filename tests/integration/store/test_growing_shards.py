"""`freshet shards grow` splits shard after shard, whoever is killed or does not answer."""

import time
from functools import partial

import numpy as np
import psycopg
import pytest
from holding_shards import (
    GROWN,
    LONG,
    OVER,
    PAGES,
    Log,
    alone,
    have_taken,
    quiet,
    schedulers,
)
from store_contents import NOW, SHARDS, urls_of_shard

from services.cli.shards import shards_now
from shared.contracts.identity import identify
from shared.contracts.layout import Layout
from shared.store import growth, splitting
from shared.store.connection import Limits, connect
from shared.store.layout import fetch_layout
from shared.store.splits import SplitState, hold, read_splits
from shared.store.splitting import SplitFailed, finish, prepare, split_all
from shared.store.writer import Observations, append_observations, ensure_observation_partition
from shared.store.writer_lock import WRITER_LOCK


def pages_by_shard(url):
    return {row["shard"]: row["pages"] for row in shards_now(alone(url))[0]["states"]}


def test_all_shards_are_split_while_their_schedulers_hold_them(filled):
    log = Log()
    layout = prepare(alone(filled), GROWN)
    with schedulers(filled):
        counts = split_all(alone(filled), layout, log, wait_seconds=LONG)
    assert fetch_layout(filled) == OVER
    pages = pages_by_shard(filled)
    assert sum(pages.values()) == SHARDS * PAGES
    assert sum(one.pages for one in counts) == sum(pages[s] for s in range(SHARDS, GROWN)) > 0
    assert [entry for entry in log.said if "being split" in entry[2]] == [
        (shard, SHARDS, f"shard {shard} is being split") for shard in range(SHARDS)
    ]


def test_a_shard_whose_scheduler_is_silent_stays_whole_and_the_others_are_not_split_again(filled):
    log = Log()
    layout = prepare(alone(filled), GROWN)
    with (
        schedulers(filled, [0]),
        pytest.raises(
            SplitFailed,
            match=f"(?s)shard 1 is not held yet.*no scheduler is running.*1 of {SHARDS}"
            f".*`freshet shards grow {GROWN}` goes on",
        ),
    ):
        split_all(alone(filled), layout, log, wait_seconds=1.0)
    assert any(done == 1 and "shard 1 is not held yet" in what for done, _, what in log.said)
    assert fetch_layout(filled) == Layout(GROWN, SHARDS, frozenset({0}))
    assert pages_by_shard(filled)[1] == PAGES
    again = prepare(alone(filled), GROWN)
    assert again.split == {0}
    with schedulers(filled):
        assert len(split_all(alone(filled), again, quiet, wait_seconds=LONG)) == SHARDS - 1
    assert fetch_layout(filled) == OVER


def test_where_no_scheduler_runs_shards_are_split_all_the_same_if_that_is_wanted(filled):
    split_all(
        alone(filled), prepare(alone(filled), GROWN), quiet, wait_seconds=0.0, unattended=True
    )
    assert fetch_layout(filled) == OVER


class Killed(BaseException):
    """Of the command."""


def test_a_shard_is_picked_while_its_pages_are_copied(filled, monkeypatch):
    """Nobody is asked to hold it before that."""
    seen = []
    make_copies = growth.make_copies

    def look(connection, parent, shards):
        made = make_copies(connection, parent, shards)
        with connect(filled, "test") as other:
            seen.append(
                (parent, read_splits(other, [parent])[parent].state, sum(made.pages.values()))
            )
        return made

    monkeypatch.setattr(growth, "make_copies", look)
    layout = prepare(alone(filled), GROWN)
    with schedulers(filled):
        counts = split_all(alone(filled), layout, quiet, wait_seconds=LONG)
    waiting = SplitState.WAITING
    assert seen == [(parent, waiting, counts[parent].pages) for parent in range(SHARDS)]


def test_copying_takes_as_long_as_it_takes(filled, monkeypatch):
    """A scheduler is given its time after that."""
    make_copies, wait_seconds = growth.make_copies, 1.0

    def make_slowly(*arguments):
        time.sleep(1.5 * wait_seconds)
        return make_copies(*arguments)

    monkeypatch.setattr(growth, "make_copies", make_slowly)
    layout = prepare(alone(filled), GROWN)
    with (
        schedulers(filled, [0, 1]),
        pytest.raises(SplitFailed, match="shard 2 could not be split in 1 s: shard 2 is not held"),
    ):
        split_all(alone(filled), layout, quiet, wait_seconds=wait_seconds)
    assert fetch_layout(filled).split == {0, 1}


def test_who_waits_for_a_scheduler_is_not_given_up_and_copies_once(filled, monkeypatch):
    impatient = Limits(silent=1)
    monkeypatch.setattr(splitting, "connect", partial(connect, limits=impatient))
    waited = []

    def look(what):
        if "is not held yet" in what:
            waited.append(what)
            if len(waited) == 12:
                with connect(filled, "test", autocommit=True) as connection:
                    hold(connection, 0)

    log = Log(look)
    layout = prepare(alone(filled), GROWN)
    with pytest.raises(SplitFailed), schedulers(filled, [2]):
        split_all(alone(filled), layout, log, wait_seconds=5.0)
    assert len(waited) > 12
    said = [what for _, _, what in log.said]
    assert not [what for what in said if "away" in what]
    assert said.count("shard 0 is copied") == 1
    assert fetch_layout(filled).split == {0}


def test_a_shard_is_picked_until_schedulers_have_those_that_it_is_split_among(filled):
    """Else nobody would crawl the pages that move, until somebody hears of the new partitions."""
    layout, late, states = prepare(alone(filled), GROWN), SHARDS, []

    def look(what):
        with connect(filled, "test") as connection:
            states.append(read_splits(connection, [0])[0].state)
        if "no scheduler has" in what and len(states) > 6:
            have_taken(filled, [late])

    log = Log(look)
    with schedulers(filled, new=range(late + 1, GROWN)):
        split_all(alone(filled), layout, log, wait_seconds=LONG)
    said = [what for _, _, what in log.said]
    waited = said.count(f"no scheduler has shard {late} yet, to which pages of 0 go")
    assert waited > 3
    assert set(states[: waited + 1]) == {SplitState.WAITING}
    assert fetch_layout(filled) == OVER


def test_a_shard_that_no_scheduler_takes_is_named_when_the_growth_is_given_up(filled):
    layout = prepare(alone(filled), GROWN)
    with (
        pytest.raises(SplitFailed, match=f"no scheduler has shard {GROWN - 1} yet"),
        schedulers(filled, new=range(SHARDS, GROWN - 1)),
    ):
        split_all(alone(filled), layout, quiet, wait_seconds=1.0)
    assert fetch_layout(filled).split == set(range(SHARDS - 1))


@pytest.mark.parametrize(
    "moment", ["shard 1 is copied", "shard 1 is asked for", "being split", "tidying up"]
)
def test_a_command_that_is_killed_goes_on_where_it_stopped(filled, moment):
    def die(what):
        if moment in what:
            raise Killed

    with schedulers(filled):
        with pytest.raises(Killed):
            split_all(alone(filled), prepare(alone(filled), GROWN), Log(die), wait_seconds=LONG)
        assert fetch_layout(filled).is_growing
        split_all(alone(filled), prepare(alone(filled), GROWN), quiet, wait_seconds=LONG)
    assert fetch_layout(filled) == OVER
    assert sum(pages_by_shard(filled).values()) == SHARDS * PAGES


def test_a_database_that_goes_away_in_the_middle_is_waited_for(filled):
    ends = []

    def cut_off(what):
        if "being split" in what and len(ends) < 2:
            with psycopg.connect(filled, autocommit=True) as other:
                ends.append(
                    other.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE application_name = 'freshet-cli' AND datname = current_database()"
                    ).fetchall()
                )

    log = Log(cut_off)
    with schedulers(filled):
        split_all(alone(filled), prepare(alone(filled), GROWN), log, wait_seconds=LONG)
    assert len(ends) == 2
    assert any("the database is away or busy" in what for _, _, what in log.said)
    assert fetch_layout(filled) == OVER


def test_an_import_is_waited_for(filled):
    with connect(filled, "import", autocommit=True) as importing, schedulers(filled):
        importing.execute("SELECT pg_advisory_lock(%s)", (WRITER_LOCK,))

        def end(what):
            if "an import of pages is under way" in what:
                importing.execute("SELECT pg_advisory_unlock_all()")

        log = Log(end)
        split_all(alone(filled), prepare(alone(filled), GROWN), log, wait_seconds=LONG)
    assert [what for _, _, what in log.said if "an import" in what]
    assert fetch_layout(filled) == OVER


def test_an_import_that_takes_long_is_named_and_the_same_call_goes_on_after_it(filled):
    again = f"(?s)an import of pages is under way.*0 of {SHARDS} .*`freshet shards grow {GROWN}`"
    with schedulers(filled):
        with connect(filled, "import", autocommit=True) as importing:
            importing.execute("SELECT pg_advisory_lock(%s)", (WRITER_LOCK,))
            with pytest.raises(SplitFailed, match=again):
                split_all(alone(filled), prepare(alone(filled), GROWN), quiet, wait_seconds=0.5)
        split_all(alone(filled), prepare(alone(filled), GROWN), quiet, wait_seconds=LONG)
    assert fetch_layout(filled) == OVER


def observe(url):
    """A crawl of each page of shard 0."""
    ids = np.array([identify(page).page_id for page in urls_of_shard(0, PAGES)])
    found = Observations(
        np.zeros(PAGES, np.int16),
        ids,
        np.full(PAGES, NOW),
        np.ones(PAGES),
        np.zeros(PAGES, np.int32),
        np.zeros(PAGES, np.bool_),
        np.zeros(PAGES, np.float32),
        np.zeros(PAGES, np.float32),
        np.zeros(PAGES, np.int16),
    )
    with connect(url, "test") as connection:
        ensure_observation_partition(connection, NOW)
        append_observations(connection, found, NOW)


def astray(url):
    with connect(url, "test") as connection:
        return connection.execute(
            "SELECT count(*) FROM observations JOIN pages USING (page_id) "
            "WHERE observations.shard <> pages.shard"
        ).fetchone()[0]


def test_what_crawls_found_follows_before_another_growth_begins(filled):
    observe(filled)
    layout = prepare(alone(filled), GROWN)
    split_all(alone(filled), layout, quiet, wait_seconds=0.0, unattended=True)
    # The command is killed here.
    assert astray(filled) > 0
    again = prepare(alone(filled), 2 * GROWN)
    assert again == Layout(2 * GROWN, GROWN, frozenset(), (SHARDS,))
    assert astray(filled) == 0
    split_all(alone(filled), again, quiet, wait_seconds=0.0, unattended=True)
    assert finish(alone(filled), again, quiet) > 0
    assert astray(filled) == 0


def test_who_calls_beside_another_claims_nothing_that_the_other_has_split(filled):
    layout = prepare(alone(filled), GROWN)
    at_once = {"wait_seconds": 0.0, "unattended": True}
    assert len(split_all(alone(filled), layout, quiet, **at_once)) == SHARDS
    # As it stood when both began.
    assert split_all(alone(filled), layout, quiet, **at_once) == []


def test_a_command_that_waits_says_so_again_and_again(filled, monkeypatch):
    """Its `until` never passes while it waits, however long that is."""
    monkeypatch.setattr(splitting, "ASKED_SECONDS", 1.0)
    seen = []

    def look(what):
        with connect(filled, "test") as connection:
            split = read_splits(connection, [0])[0]
        if "is copied" not in what:
            seen.append((split.state, split.is_current))

    have_taken(filled, range(SHARDS, GROWN))
    with pytest.raises(SplitFailed):
        split_all(alone(filled), prepare(alone(filled), GROWN), Log(look), wait_seconds=3.0)
    assert len(seen) > 3
    assert set(seen) == {(SplitState.ASKED, True)}
