"""A shard is split only while its scheduler picks nothing of it, and only once."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from alembic import command as alembic
from store_contents import SHARDS

from migrations.engine import alchemy_engine
from migrations.upgrade import alembic_config, migrate
from shared.contracts.layout import Layout
from shared.store.connection import connect
from shared.store.deployment import StoreMismatch, check_deployment
from shared.store.growth import GrowthRefused, NotHeld, begin_growth, split_shard
from shared.store.layout import fetch_layout, read_layout
from shared.store.splits import Split, SplitState, ask, hold, read_splits, resume, take_over
from shared.store.writer_lock import WRITER_LOCK, StoreBusy

GROWN = 2 * SHARDS
LONG = 1000.0
OVER = -1.0
"""Who asks for so long has gone already."""
ME = "a test"


@pytest.fixture
def layout(store):
    """Of a growth that has begun."""
    return begin_growth(store, GROWN)


@pytest.fixture
def command(store, layout):
    with connect(store, "test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def scheduler(store, layout):
    with connect(store, "test", autocommit=True) as connection:
        yield connection


def state(connection, parent=1):
    found = read_splits(connection, [parent])[parent]
    return found.state, found.is_current


def test_a_shard_is_held_when_its_scheduler_says_so_and_is_split_once(command, scheduler, layout):
    assert state(scheduler) == (SplitState.WAITING, False)
    assert not hold(scheduler, 1)
    assert ask(command, 1, LONG)
    assert state(scheduler) == (SplitState.ASKED, True)
    assert hold(scheduler, 1)
    assert ask(command, 1, LONG)
    assert state(command) == (SplitState.HELD, True)
    split_shard(command, layout, 1, ME)
    split = read_splits(command, range(GROWN))
    assert split[1].state == SplitState.SPLIT
    assert split[1].split_at > 1.7e9
    assert split[0] == Split(SplitState.WAITING, False, None, None)
    assert split.keys() == set(range(SHARDS))
    assert read_layout(command) == Layout(GROWN, SHARDS, frozenset({1}))
    assert not ask(command, 1, LONG)
    assert not hold(scheduler, 1)
    assert not resume(scheduler, 1)
    take_over(scheduler, [1], "a scheduler")
    with pytest.raises(NotHeld, match="shard 1 is split"):
        split_shard(command, layout, 1, ME)


def test_who_asked_and_is_gone_gets_nothing_and_the_scheduler_goes_on(command, scheduler, layout):
    ask(command, 1, OVER)
    assert not hold(scheduler, 1)
    assert resume(scheduler, 1)
    assert state(scheduler) == (SplitState.WAITING, False)
    ask(command, 1, LONG)
    assert not resume(scheduler, 1)
    hold(scheduler, 1)
    assert not resume(scheduler, 1)
    ask(command, 1, OVER)
    with pytest.raises(NotHeld, match="shard 1 is held, or was asked for too long ago"):
        split_shard(command, layout, 1, ME)
    assert resume(scheduler, 1)
    assert state(scheduler) == (SplitState.WAITING, False)


@pytest.mark.parametrize("steps", [[], [ask]])
def test_nothing_is_split_that_is_not_held(command, layout, steps):
    for step in steps:
        step(command, 1, LONG)
    with pytest.raises(NotHeld):
        split_shard(command, layout, 1, ME)
    assert read_layout(command) == layout


def test_a_scheduler_that_takes_a_shard_over_is_asked_anew(command, scheduler, layout):
    ask(command, 1, LONG)
    hold(scheduler, 1)
    take_over(scheduler, [0, 1], "a scheduler")
    assert state(command) == (SplitState.ASKED, True)
    assert state(command, 0) == (SplitState.WAITING, False)
    with pytest.raises(NotHeld, match="shard 1 is asked"):
        split_shard(command, layout, 1, ME)
    assert hold(scheduler, 1)


def test_who_was_replaced_holds_nothing_any_more(command, scheduler, layout):
    take_over(scheduler, [0, 1], "before")
    ask(command, 1, LONG)
    take_over(scheduler, [1], "after")
    assert not hold(scheduler, 1, claim="before")
    assert state(command) == (SplitState.ASKED, True)
    with pytest.raises(NotHeld, match="shard 1 is asked"):
        split_shard(command, layout, 1, ME)
    claims = {parent: split.claim for parent, split in read_splits(command, [0, 1, 2]).items()}
    assert claims == {0: "before", 1: "after", 2: None}
    assert hold(scheduler, 1, claim="after")
    split_shard(command, layout, 1, ME)


def test_a_claim_counts_from_before_the_growth_begins(store):
    """Both have loaded the shard before anybody thought of a growth."""
    with connect(store, "test", autocommit=True) as connection:
        for claim in ("before", "after"):
            take_over(connection, [1], claim)
        begin_growth(store, GROWN)
        ask(connection, 1, LONG)
        assert not hold(connection, 1, claim="before")
        assert hold(connection, 1, claim="after")


def test_who_holds_a_shard_just_when_another_takes_it_over_has_not_held_it(
    store, command, scheduler
):
    take_over(scheduler, [1], "before")
    ask(command, 1, LONG)
    with connect(store, "test") as late, ThreadPoolExecutor() as pool:
        assert hold(late, 1, claim="before")
        taking = pool.submit(take_over, scheduler, [1], "after")
        with pytest.raises(TimeoutError):
            taking.result(0.3)
        late.commit()
        taking.result(10.0)
    assert state(command) == (SplitState.ASKED, True)
    with connect(store, "test") as taking_over:
        taking_over.execute("UPDATE shard_claims SET claim = 'latest' WHERE shard = 1")
        assert not hold(scheduler, 1, claim="after")
        taking_over.commit()
    assert not hold(scheduler, 1, claim="after")
    assert state(command) == (SplitState.ASKED, True)


def test_a_split_that_is_under_way_keeps_nobody_waiting_but_who_takes_the_shard_over(
    store, command, scheduler
):
    ask(command, 1, LONG)
    hold(scheduler, 1)
    scheduler.execute("SET lock_timeout = '100ms'")
    with connect(store, "test") as splitting:
        splitting.execute("SELECT FROM shard_splits WHERE parent = 1 FOR UPDATE")
        assert not ask(scheduler, 1, LONG)
        assert not hold(scheduler, 1)
        assert not resume(scheduler, 1)
        with pytest.raises(psycopg.errors.LockNotAvailable):
            take_over(scheduler, [1], "a scheduler")
        take_over(scheduler, [0], "a scheduler")
        assert read_splits(scheduler, [1])[1].state == SplitState.HELD


def test_an_import_and_a_split_exclude_each_other(store, command, scheduler, layout):
    ask(command, 1, LONG)
    hold(scheduler, 1)
    with connect(store, "test", autocommit=True) as importing:
        importing.execute("SELECT pg_advisory_lock(%s)", (WRITER_LOCK,))
        with pytest.raises(StoreBusy, match="an import"):
            split_shard(command, layout, 1, ME)
        # A server frees what a closed connection held some moments later.
        importing.execute("SELECT pg_advisory_unlock(%s)", (WRITER_LOCK,))
    split_shard(command, layout, 1, ME)


def test_a_growth_begins_once_and_goes_on_by_the_same_number(store, layout):
    assert layout == Layout(GROWN, SHARDS, frozenset())
    with connect(store, "test") as connection:
        ask(connection, 2, LONG)
    assert begin_growth(store, GROWN) == layout
    with connect(store, "test") as connection:
        assert state(connection, 2) == (SplitState.ASKED, True)
    with pytest.raises(GrowthRefused, match=f"let `freshet shards grow {GROWN}` end first"):
        begin_growth(store, 2 * GROWN)


@pytest.mark.parametrize("shards", [1, SHARDS, SHARDS + 1, 1000 * SHARDS * SHARDS])
def test_shards_become_a_multiple_or_nothing(store, shards):
    with pytest.raises(GrowthRefused):
        begin_growth(store, shards)
    assert fetch_layout(store) == Layout.of(SHARDS)


def split_all(store, layout):
    with connect(store, "test", autocommit=True) as connection:
        for parent in range(layout.grown_from):
            ask(connection, parent, LONG)
            hold(connection, parent)
            split_shard(connection, layout, parent, ME)


def test_a_growth_that_is_over_is_no_growth_and_another_one_can_follow(store, layout):
    split_all(store, layout)
    over = Layout(GROWN, SHARDS, frozenset(range(SHARDS)))
    assert begin_growth(store, GROWN) == fetch_layout(store) == over
    assert not over.is_growing
    again = begin_growth(store, 4 * SHARDS)
    assert again == fetch_layout(store) == Layout(4 * SHARDS, GROWN, frozenset(), (SHARDS,))
    split_all(store, again)
    assert not fetch_layout(store).is_growing


def test_workers_with_the_number_of_before_go_on_and_others_are_refused(store, layout):
    with connect(store, "test") as connection:
        check_deployment(connection, SHARDS)
        check_deployment(connection, GROWN)
        for wrong in (GROWN + 1, 2 * GROWN):
            with pytest.raises(StoreMismatch, match=f"{GROWN} shards.* say {wrong}.*shards grow"):
                check_deployment(connection, wrong)


def test_a_database_that_is_not_migrated_has_no_layout(database_url):
    with pytest.raises(StoreMismatch, match="freshet migrate"):
        fetch_layout(database_url)
    with alchemy_engine(database_url).begin() as connection:
        alembic.upgrade(alembic_config(connection), "0016")
    with pytest.raises(StoreMismatch, match="freshet migrate"):
        fetch_layout(database_url)


def test_migrating_in_a_growth_keeps_what_the_database_has(store, layout):
    assert migrate(store, SHARDS) == migrate(store, GROWN) == GROWN
    assert fetch_layout(store) == layout


def test_a_growth_that_is_under_way_is_not_migrated_away(store, layout):
    with (
        pytest.raises(RuntimeError, match=f"{SHARDS} shards are still to be split"),
        alchemy_engine(store).begin() as connection,
    ):
        alembic.downgrade(alembic_config(connection), "0016")
    split_all(store, layout)
    with alchemy_engine(store).begin() as connection:
        alembic.downgrade(alembic_config(connection), "0016")
    assert migrate(store, GROWN) == GROWN
    assert fetch_layout(store) == Layout.of(GROWN)


def test_room_is_made_while_somebody_reads_all_pages(store):
    with connect(store, "test") as reader:
        reader.execute("SELECT count(*) FROM pages, page_urls").fetchone()
        begin_growth(store, GROWN)
        assert reader.execute("SELECT count(*) FROM pages").fetchone() == (0,)
