"""URLs that a split leaves where they were: in nobody's way, and gone in the end."""

import numpy as np
import psycopg
import pytest
from store_contents import NOW, SHARDS, fill, urls_of, urls_of_shard

from shared.contracts.databases import Databases
from shared.contracts.identity import identify, shard_of
from shared.store import left_urls, moving, splitting
from shared.store.connection import connect
from shared.store.erasing import ErasedRows, erase_pages
from shared.store.growth import begin_growth, split_shard
from shared.store.left_urls import delete_left_urls
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.splits import ask, hold
from shared.store.splitting import finish, prepare, split_all

PARENT = 1
GROWN = 2 * SHARDS
URLS = urls_of_shard(PARENT, 4_000)
"""Some tens of blocks."""


def quiet(*_):
    """Nobody listens."""


@pytest.fixture
def filled(store):
    fill(store, URLS)
    return store


@pytest.fixture
def command(filled):
    with connect(filled, "test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def split(filled, command):
    """The layout, when a shard has just been split."""
    layout = begin_growth(filled, GROWN)
    ask(command, PARENT, 1000.0)
    hold(command, PARENT)
    split_shard(command, layout, PARENT, "me")
    return layout


def stored(connection):
    """URL → the shards where it is."""
    found = {}
    for url, shard in connection.execute("SELECT url, shard FROM page_urls ORDER BY shard"):
        found.setdefault(url, []).append(shard)
    return found


def right():
    return {url: [shard_of(identify(url).host, GROWN)] for url in URLS}


def test_nobody_sees_them_and_they_can_be_deleted_again_and_again(filled, command, split):
    left = [url for url, shards in stored(command).items() if len(shards) > 1]
    assert len(left) > 500
    loaded = load_shard(filled, PARENT)
    assert sorted(urls_of(loaded)) == sorted(set(URLS) - set(left))
    assert load_for_learning(filled, PARENT).pages.page_ids.size == len(URLS) - len(left)
    assert delete_left_urls(command, PARENT) == len(left)
    assert stored(command) == right()
    assert delete_left_urls(command, PARENT) == 0
    assert delete_left_urls(command, GROWN + 1) == 0


def test_who_dies_amid_it_leaves_the_rest_to_the_next(command, split, monkeypatch):
    monkeypatch.setattr(left_urls, "_BLOCKS_AT_ONCE", 3)

    class Killed(BaseException):
        """Of the command."""

    def die():
        raise Killed

    before = sum(map(len, stored(command).values()))
    with pytest.raises(Killed):
        delete_left_urls(command, PARENT, die)
    amid = sum(map(len, stored(command).values()))
    assert len(URLS) < amid < before
    told = []
    delete_left_urls(command, PARENT, lambda: told.append(1))
    assert len(told) > 5
    assert stored(command) == right()


def test_a_page_that_comes_meanwhile_keeps_its_url_and_who_erases_one_does_not_wait(
    filled, command, split
):
    staying = [url for url, shards in right().items() if shards == [PARENT]]
    one, other = identify(staying[0]), identify(staying[1])
    with connect(filled, "estimator") as estimator:
        columns = (
            "importance, max_age_days, unsignalled_change_rate, signal_evidence, signal_rate, "
            "first_seen_at, last_crawled_at, last_attempt_at, last_changed_at, last_signal_at, "
            "updated_at, digest, signal_count, signals, crawls, changes, failures, status, history"
        )
        estimator.execute(
            f"INSERT INTO pages (shard, page_id, host_id, {columns}) "
            f"SELECT shard, 7, host_id, {columns} FROM pages WHERE page_id = %s",
            (one.page_id,),
        )
        estimator.execute("INSERT INTO page_urls VALUES (%s, 7, 'https://new/')", (PARENT,))
        one_row = np.array([PARENT], np.int16), np.array([other.page_id]), np.array([NOW])
        erase_pages(estimator, ErasedRows(*one_row))
        command.execute("SET lock_timeout = '1s'")
        assert delete_left_urls(command, PARENT) > 0
        estimator.commit()
    found = stored(command)
    assert found["https://new/"] == [PARENT]
    assert other.url not in found


def test_what_is_tidied_up_is_not_looked_through_again(filled, command, monkeypatch):
    """A growth that is called again, or followed by another, costs what is left of it."""
    alone, looked = Databases.alone(filled), []

    def noted(function, name):
        def call(*arguments):
            looked.append(name or arguments[1])
            return function(*arguments)

        return call

    monkeypatch.setattr(left_urls, "runs_of_blocks", noted(left_urls.runs_of_blocks, None))
    runs = noted(moving.observation_runs, "observations")
    monkeypatch.setattr(moving, "observation_runs", runs)
    layout = prepare(alone, GROWN)
    split_all(alone, layout, quiet, wait_seconds=0.0, unattended=True)
    assert looked == [f"page_urls_{parent}" for parent in range(SHARDS)]
    finish(alone, layout, quiet)
    assert looked[SHARDS:] == ["observations"]
    looked.clear()
    finish(alone, prepare(alone, GROWN), quiet)
    assert looked == []
    prepare(alone, 2 * GROWN)
    assert looked == []
    assert stored(command) == right()
    command.execute("UPDATE shard_splits SET split_at = 1 WHERE parent = 1")
    delete_left_urls(command, 1)
    assert looked == ["page_urls_1"]  # The next growth's leftovers are its own.


def test_who_is_killed_before_all_is_deleted_has_not_tidied_up(command, split, monkeypatch):
    monkeypatch.setattr(left_urls, "_BLOCKS_AT_ONCE", 3)
    calls = []

    class Killed(BaseException):
        """Of the command, when the last slice is done."""

    def die_at_the_last():
        calls.append(1)
        if len(calls) == slices:
            raise Killed

    slices = len(list(left_urls.runs_of_blocks(command, f"page_urls_{PARENT}", 3)))
    with pytest.raises(Killed):
        delete_left_urls(command, PARENT, die_at_the_last)
    told = []
    delete_left_urls(command, PARENT, lambda: told.append(1))
    assert len(told) == slices
    delete_left_urls(command, PARENT, lambda: told.append(1))
    assert len(told) == slices


def test_a_shard_that_is_not_split_is_not_called_tidied_up(filled, command):
    layout = begin_growth(filled, GROWN)
    assert delete_left_urls(command, PARENT) == 0
    ask(command, PARENT, 1000.0)
    hold(command, PARENT)
    split_shard(command, layout, PARENT, "me")
    assert delete_left_urls(command, PARENT) > 500


@pytest.mark.parametrize("again", ["the same", "the next growth"])
def test_what_a_command_that_was_killed_has_left_is_deleted_by_the_next(
    filled, command, monkeypatch, again
):
    def cut_off(*_):
        raise psycopg.OperationalError("the server closed the connection")

    alone, patience = Databases.alone(filled), {"wait_seconds": 0.0, "unattended": True}
    with monkeypatch.context() as away:
        away.setattr(splitting, "tidy", cut_off)
        layout = prepare(alone, GROWN)
        split_all(alone, layout, quiet, **patience)
    assert sum(map(len, stored(command).values())) > len(URLS)
    if again == "the same":
        layout = prepare(alone, GROWN)
        assert split_all(alone, layout, quiet, **patience) == []
        finish(alone, layout, quiet)
    else:
        prepare(alone, 2 * GROWN)
    assert stored(command) == right()
