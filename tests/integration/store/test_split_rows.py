"""A split takes every row where its host is from now on, and loses none."""

from collections import Counter

import numpy as np
import pytest
from page_batches import page_batch
from store_contents import NOW, SHARDS, fill, urls_of_shard

from shared.contracts.identity import host_id_of, identify, shard_of
from shared.store import growth, moving
from shared.store.columns import UnansweredNews, UnansweredPages
from shared.store.connection import connect, connect_writer
from shared.store.deployment import StoreMismatch
from shared.store.erased_traces import delete_observations
from shared.store.erasing import ErasedRows, erase_hosts, erase_pages, read_erased
from shared.store.growth import begin_growth, split_shard
from shared.store.imports import import_pages
from shared.store.models_outside import ALL_TABLES
from shared.store.moving import move_observations, tidy
from shared.store.owners import (
    Announcing,
    note_announcing,
    raise_epochs,
    read_owner,
    require_ownership,
)
from shared.store.page_classes import write_classes
from shared.store.partitions import ensure_partitions
from shared.store.positions import Superseded
from shared.store.snapshot import load_for_learning
from shared.store.splits import ask, hold, take_over
from shared.store.unanswered import write_unanswered
from shared.store.writer import (
    Observations,
    append_observations,
    ensure_observation_partition,
)

PARENT = 1
GROWN = 4 * SHARDS
FAMILY = (1, 4, 7, 10)
URLS = 120
HOSTS = 24
PERIODS = (NOW, NOW + 40 * 86_400)
"""Of observations; each in a partition of its own."""

OF_PAGES = {"pages", "page_urls", "observations", "unanswered_pages"}
OF_HOSTS = {"hosts"}
WITH_EACH = {"erased_pages", "erased_hosts", "page_classes"}
"""What each shard of the family keeps all of."""
STAYING = {"page_imports"}
OWNED = {"shard_owners", "shard_claims"}


def by_shard():
    """The tables that have a shard in every row."""
    return {
        name for name, table in ALL_TABLES.tables.items() if "shard" in table.primary_key.columns
    } | {"observations"}


def rows(connection, table):
    """(shard, the other columns of a row) → how often."""
    names = ", ".join(c.name for c in ALL_TABLES.tables[table].columns if c.name != "shard")
    found = connection.execute(f"SELECT shard, ({names})::text FROM {table}").fetchall()
    return Counter(found)


def everything(connection):
    return {table: rows(connection, table) for table in by_shard()}


def of(found, shards):
    """Rows of some shards, without their numbers."""
    chosen = Counter()
    for (shard, row), times in found.items():
        chosen[row] += times * (shard in shards)
    return +chosen


def urls_of_family():
    hosts = (f"host-{number}.example" for number in range(10_000))
    right = [host for host in hosts if shard_of(host, SHARDS) == PARENT][:HOSTS]
    return [f"https://{right[n % HOSTS]}/page/{n}" for n in range(URLS)]


def observe(connection, urls, recorded_at, shard=PARENT):
    ids = np.array([identify(url).page_id for url in urls])
    count = ids.size
    found = Observations(
        np.full(count, shard, np.int16),
        ids,
        np.full(count, recorded_at),
        np.arange(count) + 1.0,
        np.zeros(count, np.int32),
        np.zeros(count, np.bool_),
        np.zeros(count, np.float32),
        np.zeros(count, np.float32),
        np.zeros(count, np.int16),
    )
    ensure_observation_partition(connection, recorded_at)
    append_observations(connection, found, recorded_at)
    connection.commit()


def leave_unanswered(connection, shard, urls):
    ids = np.array([identify(url).page_id for url in urls])
    count = np.arange(ids.size)
    times = NOW + count, NOW + count + 60.0, NOW - count
    pages = UnansweredPages(ids, (count + 1).astype(np.int16), *times)
    take_over(connection, [shard], "test")
    news = UnansweredNews(shard, "test", pages, ids[:0])
    assert write_unanswered(connection, [news]) == {shard}


def erased(ids):
    return ErasedRows(
        np.full(len(ids), PARENT, np.int16), np.sort(np.array(ids)), np.full(len(ids), NOW)
    )


@pytest.fixture
def filled(store):
    """A store with something in each table by shard, of the family and of others."""
    urls = urls_of_family()
    others = urls_of_shard(0, 20) + urls_of_shard(2, 20)
    fill(store, urls + others, importance=np.arange(len(urls + others)) + 1.0)
    with connect_writer(store, "test") as connection:
        for time in PERIODS:
            observe(connection, urls, time)
            observe(connection, urls_of_shard(2, 20), time, 2)
        connection.execute("UPDATE pages SET digest = page_id, crawls = 3")
        connection.execute(
            "UPDATE hosts SET max_crawls_per_second = host_id % 5, "
            "max_open_requests = nullif(abs(host_id % 4), 0)"
        )
        leave_unanswered(connection, PARENT, urls)
        leave_unanswered(connection, 2, urls_of_shard(2, 20))
        gone = urls[-1]
        erase_pages(connection, erased([identify(gone).page_id, 12345]))
        erase_hosts(connection, erased([777]))
        write_classes(connection, PARENT, {1: "news", 3: "partner"})
        write_classes(connection, PARENT, {3: "archive"})
        raise_epochs(connection, [PARENT, 2], "before")
        pages = np.array([identify(url).page_id for url in urls[:9]])
        hosts = np.array([host_id_of(identify(urls[0]).host)])
        note_announcing(connection, {PARENT: Announcing(pages, hosts)})
    return store


@pytest.fixture
def layout(filled):
    return begin_growth(filled, GROWN)


@pytest.fixture
def command(filled, layout):
    """A command to which the scheduler of the shard has said that it holds it."""
    with connect(filled, "test", autocommit=True) as connection:
        ask(connection, PARENT, 1000.0)
        hold(connection, PARENT)
        yield connection


def right_shards(connection, table):
    """Row → the shard that its host's name says."""
    key = "page_id" if table in OF_PAGES else "host_id"
    names = connection.execute("SELECT host, host_id FROM hosts").fetchall()
    right = {host_id: shard_of(host, GROWN) for host, host_id in names}
    if key == "page_id":
        pages = connection.execute("SELECT page_id, host_id FROM pages").fetchall()
        right = {page_id: right[host_id] for page_id, host_id in pages}
    found = connection.execute(f"SELECT {key}, shard FROM {table} WHERE shard % 3 = 1").fetchall()
    return found, right


def test_every_table_by_shard_is_thought_of():
    assert by_shard() == OF_PAGES | OF_HOSTS | WITH_EACH | STAYING | OWNED


def test_the_family_has_what_the_parent_had_each_row_where_its_host_is(filled, command, layout):
    before = everything(command)
    counts = split_shard(command, layout, PARENT, "me")
    tidy(command, layout, PARENT)
    moved = move_observations(filled, layout)
    after = everything(command)
    for table in OF_PAGES | OF_HOSTS:
        assert of(after[table], FAMILY) == of(before[table], [PARENT])
        assert len(of(before[table], [PARENT])) >= HOSTS
        found, right = right_shards(command, table)
        lost = identify(urls_of_family()[-1]).page_id
        wrong = {key for key, shard in found if shard != right.get(key, PARENT)}
        assert wrong == set(), table
        assert {shard for _, shard in found} == set(FAMILY)
        # What was found of a page that is erased has no page to follow, and waits for deletion.
        assert {key for key, _ in found} - right.keys() <= {lost}
    for table in WITH_EACH:
        for shard in FAMILY:
            assert of(after[table], [shard]) == of(before[table], [PARENT]) != Counter()
    for table in STAYING:
        assert after[table] == before[table] != Counter()
    for table in by_shard():
        assert of(after[table], [0, 2]) == of(before[table], [0, 2])
    gone = counts.pages, counts.hosts
    assert gone == tuple(of(after[t], FAMILY[1:]).total() for t in ("pages", "hosts"))
    assert moved == of(after["observations"], FAMILY[1:]).total() > 0
    assert move_observations(filled, layout) == 0


def test_each_shard_of_the_family_loads_and_has_what_was_to_be_announced(filled, command, layout):
    _, noted = read_owner(command, PARENT)
    split_shard(command, layout, PARENT, "me")
    tidy(command, layout, PARENT)
    loaded = [load_for_learning(filled, shard) for shard in FAMILY]
    assert sum(one.pages.page_ids.size for one in loaded) == URLS - 1
    for one in loaded:
        assert one.announcing.page_ids.tolist() == noted.page_ids.tolist()
        assert one.announcing.host_ids.tolist() == noted.host_ids.tolist()
        assert {shard_of(host, GROWN) for host in one.hosts.names} == {one.shard}


def test_who_owned_a_shard_of_the_family_commits_nothing_more(filled, layout, command):
    with connect_writer(filled, "test") as estimator:
        owned = raise_epochs(estimator, FAMILY, "an estimator")
        estimator.commit()
        require_ownership(estimator, owned, "an estimator")
        estimator.rollback()
        split_shard(command, layout, PARENT, "me")
        for shard in FAMILY:
            with pytest.raises(Superseded):
                require_ownership(estimator, {shard: owned[shard]}, "an estimator")
            estimator.rollback()


def tables_there(connection):
    """Temporary ones, too."""
    return {name for (name,) in connection.execute("SELECT relname FROM pg_class").fetchall()}


class Killed(Exception):
    """Of the one who splits."""


@pytest.mark.parametrize(
    ("module", "last"),
    [
        (growth, "note_moves"),
        (growth, "make_copies"),
        (moving, "put_in_place"),
        (moving, "_move_pages"),
        (moving, "move_unanswered"),
        (moving, "_copy_erased"),
        (growth, "move_rows"),
    ],
)
def test_who_dies_in_the_middle_of_a_split_has_changed_nothing(
    filled, layout, command, monkeypatch, module, last
):
    step = getattr(module, last)
    if last == "_move_pages":
        # As the release before made them, when a growth began.
        with connect(filled, "test") as connection:
            ensure_partitions(connection, FAMILY)

    def dies(connection, *arguments):
        step(connection, *arguments)
        connection.close()
        raise Killed

    before, tables = everything(command), tables_there(command)
    monkeypatch.setattr(module, last, dies)
    with connect(filled, "test", autocommit=True) as killed, pytest.raises(Killed):
        split_shard(killed, layout, PARENT, "me")
    assert everything(command) == before
    assert tables_there(command) == tables
    monkeypatch.setattr(module, last, step)
    assert split_shard(command, layout, PARENT, "me").pages > 0


@pytest.mark.parametrize("table", ["pages", "page_urls", "hosts"])
def test_rows_that_should_not_be_there_are_no_reason_to_mix_them(filled, command, layout, table):
    with connect(filled, "test") as connection:
        ensure_partitions(connection, FAMILY)
    command.execute(
        f"UPDATE {table} SET shard = 7 WHERE ctid = (SELECT min(ctid) FROM {table}_1)"
        if table != "hosts"
        else "UPDATE hosts SET shard = 7 WHERE host_id = (SELECT min(host_id) FROM hosts)"
    )
    with pytest.raises(StoreMismatch, match=f"table {table} has rows of shard 7"):
        split_shard(command, layout, PARENT, "me")


def test_an_import_goes_where_hosts_are_at_the_moment(filled, layout, command):
    urls = urls_of_family()
    hosts = {identify(url).host for url in urls}
    new = [f"https://{host}/new" for host in hosts]
    split_shard(command, layout, PARENT, "me")
    # A shard that is not split yet has its hosts as before.
    waiting = [url + "/new" for url in urls_of_shard(2, 20)]
    assert import_pages(filled, SHARDS, [page_batch(new + waiting)], now=NOW).added == len(
        new + waiting
    )
    found = dict(command.execute("SELECT url, shard FROM page_urls").fetchall())
    assert {found[url] for url in waiting} == {2}
    assert {url: found[url] for url in new} == {
        url: shard_of(identify(url).host, GROWN) for url in new
    }


def test_what_was_found_of_erased_pages_is_deleted_before_and_after_it_has_moved(
    filled, layout, command
):
    elsewhere = next(
        url for url in urls_of_family() if shard_of(identify(url).host, GROWN) != PARENT
    )
    page = identify(elsewhere)
    child = shard_of(page.host, GROWN)
    split_shard(command, layout, PARENT, "me")
    with connect_writer(filled, "test") as estimator:
        gone = ErasedRows(
            np.array([child], np.int16), np.array([page.page_id]), np.array([NOW + 9])
        )
        erase_pages(estimator, gone)
    # That of the page that was erased before the growth, and of this one.
    assert delete_observations(filled) == 2 * len(PERIODS)
    move_observations(filled, layout)
    assert delete_observations(filled) == 0
    assert page.page_id in read_erased(command, child).pages.page_ids


def test_what_was_found_of_a_page_that_came_back_stays(filled, layout, command):
    """It is erased in all shards of the family, and there again in one of them."""
    back = urls_of_family()[-1]
    split_shard(command, layout, PARENT, "me")
    import_pages(filled, SHARDS, [page_batch([back])], now=NOW + 1)
    found = "SELECT count(*) FROM observations WHERE page_id = %s"
    page_id = identify(back).page_id
    command.execute(
        "UPDATE observations SET crawled_at = %s WHERE page_id = %s", (NOW + 5, page_id)
    )
    assert delete_observations(filled) == 0
    assert command.execute(found, (page_id,)).fetchone() == (len(PERIODS),)
    move_observations(filled, layout)
    assert delete_observations(filled) == 0
    assert command.execute(found, (page_id,)).fetchone() == (len(PERIODS),)


def test_a_shard_of_another_growth_is_not_split(command, filled, layout):
    other = type(layout)(2 * SHARDS, SHARDS, frozenset())
    with pytest.raises(StoreMismatch, match="shard 1 is none that is split"):
        split_shard(command, other, PARENT, "me")
