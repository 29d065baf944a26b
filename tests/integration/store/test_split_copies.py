"""What a split moves is copied while its shard is still written, and nobody else is held up."""

from collections import Counter

import numpy as np
import psycopg
import pytest
from page_batches import page_batch
from store_contents import NOW, SHARDS, fill

from migrations.upgrade import migrate
from shared.contracts.databases import Databases
from shared.contracts.identity import host_id_of, identify, shard_of
from shared.store import copies, growth
from shared.store.connection import connect, connect_writer
from shared.store.deployment import StoreMismatch
from shared.store.erasing import ErasedRows, erase_pages
from shared.store.growth import begin_growth, split_shard
from shared.store.imports import import_pages
from shared.store.layout import read_layout
from shared.store.moving import tidy
from shared.store.partitions import ensure_partitions, without_partitions
from shared.store.purging import Purgeable, count_purgeable
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.splits import ask, hold
from shared.store.writer_lock import WRITER_LOCK, StoreBusy

PARENT = 1
GROWN = 4 * SHARDS
FAMILY = (1, 4, 7, 10)
PAGES = 240


def host_of(shard, number=0):
    """A host that goes to a shard in the end."""
    names = (f"host-{n}.example" for n in range(100_000))
    right = (name for name in names if shard_of(name, GROWN) == shard)
    return [next(right) for _ in range(number + 1)][-1]


def url_of(shard, page, number=0):
    return f"https://{host_of(shard, number)}/{page}"


def ids_of(urls):
    return np.sort(np.array([identify(url).page_id for url in urls]))


URLS = [url_of(FAMILY[n % 4], n) for n in range(PAGES)]
OTHERS = [url_of(2, n) for n in range(20)]


@pytest.fixture
def filled(store):
    fill(store, URLS + OTHERS)
    return store


@pytest.fixture
def layout(filled):
    return begin_growth(filled, GROWN)


@pytest.fixture
def command(filled):
    with connect(filled, "test", autocommit=True) as connection:
        yield connection


@pytest.fixture
def estimator(filled):
    with connect_writer(filled, "test") as connection:
        yield connection


def attach_as_before(url, shards):
    """Make empty partitions, as growths of the release before did at once."""
    with connect(url, "test") as connection:
        ensure_partitions(connection, shards)


def held(url):
    with connect(url, "test", autocommit=True) as connection:
        ask(connection, PARENT, 1000.0)
        hold(connection, PARENT)


def contents(connection):
    """Table → its rows, but for their shards, of the family."""
    found = {}
    for table, columns in {"pages": "page", "page_urls": "page.url, page.page_id"}.items():
        rows = connection.execute(
            f"SELECT to_jsonb(row) - 'shard' FROM (SELECT {columns}{'.*' * (table == 'pages')} "
            f"FROM {table} AS page WHERE shard = ANY(%s)) AS row",
            (list(FAMILY),),
        ).fetchall()
        found[table] = Counter(str(row) for (row,) in rows)
    return found


def shards_of_urls(connection):
    """URL → the shards where it is, and where its page is."""
    rows = connection.execute(
        "SELECT url, url.shard, page.shard FROM page_urls AS url "
        "FULL JOIN pages AS page USING (page_id)"
    ).fetchall()
    assert len({url for url, *_ in rows}) == len(rows)
    return {url: shards for url, *shards in rows}


def all_are_right(connection):
    found = shards_of_urls(connection)
    right = {
        url: shard_of(identify(url).host, GROWN if url not in OTHERS else SHARDS) for url in found
    }
    return found == {url: [shard, shard] for url, shard in right.items()}


def erase(estimator, urls, shard=PARENT):
    ids = ids_of(urls)
    erase_pages(
        estimator, ErasedRows(np.full(ids.size, shard, np.int16), ids, np.full(ids.size, NOW))
    )


def add(estimator, urls, shard=PARENT):
    """Add pages like one that is there, and their hosts."""
    for url in urls:
        page = identify(url)
        names = (
            "importance, max_age_days, unsignalled_change_rate, signal_evidence, signal_rate, "
            "first_seen_at, last_crawled_at, last_attempt_at, last_changed_at, last_signal_at, "
            "updated_at, digest, signal_count, signals, crawls, changes, failures, status, history"
        )
        estimator.execute(
            f"INSERT INTO pages (shard, page_id, host_id, {names}) SELECT %s, %s, %s, {names} "
            "FROM pages WHERE page_id = %s",
            (shard, page.page_id, host_id_of(page.host), identify(OTHERS[0]).page_id),
        )
        estimator.execute("INSERT INTO page_urls VALUES (%s, %s, %s)", (shard, page.page_id, url))
        estimator.execute(
            "INSERT INTO hosts (shard, host_id, host, blocked_until, limit_updated_at, sources) "
            "VALUES (%s, %s, %s, 0, 0, '') ON CONFLICT DO NOTHING",
            (shard, host_id_of(page.host), page.host),
        )


def touch(estimator, urls):
    estimator.execute(
        "UPDATE pages SET crawls = crawls + 7 WHERE page_id = ANY(%s)", (ids_of(urls),)
    )


@pytest.mark.parametrize("attached", [(), (4, 7, 10), (7,)])
def test_what_is_written_while_a_shard_is_copied_moves_as_it_is_in_the_end(
    filled, layout, command, estimator, attached
):
    """Also where the release before has begun the growth, and made some partitions, or all."""
    attach_as_before(filled, attached)
    touch(estimator, URLS[:4])
    erase(estimator, URLS[4:8])
    add(estimator, [url_of(shard, "early") for shard in FAMILY])
    before = {}

    def go_on():
        # It was under way when the copying began.
        estimator.commit()
        touch(estimator, URLS[8:12])
        erase(estimator, URLS[12:20])
        estimator.commit()
        back = URLS[16:20]
        new = [url_of(shard, "new") for shard in FAMILY]
        of_new_hosts = [url_of(shard, "new", number=1) for shard in FAMILY]
        add(estimator, back + new + of_new_hosts)
        estimator.commit()
        held(filled)
        before.update(contents(command))

    with connect(filled, "test", autocommit=True) as splitting:
        # Whatever is the default of the server.
        splitting.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        counts = split_shard(splitting, layout, PARENT, "me", go_on)
        tidy(splitting, layout, PARENT)
    assert contents(command) == before
    assert before["pages"].total() == PAGES - 4 - 4 + 4 + 4 + 4
    assert all_are_right(command)
    assert without_partitions(command, FAMILY) == []
    moved = command.execute("SELECT count(*) FROM pages WHERE shard IN (4, 7, 10)").fetchone()
    assert moved == (counts.pages,)
    for table in ("pages", "page_urls"):
        where_they_are = command.execute(
            f"SELECT DISTINCT tableoid::regclass::text, shard FROM {table} WHERE shard = ANY(%s)",
            (list(FAMILY),),
        ).fetchall()
        assert sorted(where_they_are) == sorted((f"{table}_{s}", s) for s in FAMILY)


def test_urls_of_pages_that_come_while_others_are_erased_stay(filled, layout, command, estimator):
    erase(estimator, [url for url in URLS if identify(url).host == host_of(4)])
    staying = [url_of(PARENT, f"new-{n}") for n in range(PAGES)]

    def go_on():
        estimator.commit()
        command.execute("VACUUM page_urls_1")
        add(estimator, staying)
        estimator.commit()
        held(filled)

    with connect(filled, "test", autocommit=True) as splitting:
        split_shard(splitting, layout, PARENT, "me", go_on)
        tidy(splitting, layout, PARENT)
    assert all_are_right(command)
    assert shards_of_urls(command).keys() >= set(staying)


def test_others_read_and_write_all_the_while(filled, layout, command, estimator, monkeypatch):
    """Other shards' estimators, and who reads all pages, at whatever moment they began."""
    estimator.execute("SET lock_timeout = '1s'")
    split = growth.pass_on_announcing
    seen = []

    def go_on(number):
        touch(estimator, OTHERS[:5])
        add(estimator, [url_of(2, f"new-{number}")], 2)
        estimator.commit()
        with connect(filled, "test") as new_reader:
            new_reader.execute("SET lock_timeout = '1s'")
            new_reader.execute("SELECT count(*) FROM pages JOIN page_urls USING (page_id)")
        load_shard(filled, 2)
        seen.append(number)

    def just_before_its_end(*arguments):
        go_on(2)
        split(*arguments)

    def when_it_is_copied():
        go_on(1)
        held(filled)

    monkeypatch.setattr(growth, "pass_on_announcing", just_before_its_end)
    with (
        connect(filled, "test") as reader,
        connect(filled, "test", autocommit=True) as splitting,
    ):
        reader.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        everything = "SELECT shard, count(*) FROM pages JOIN page_urls USING (shard, page_id) " + (
            "GROUP BY shard ORDER BY shard"
        )
        before = reader.execute(everything).fetchall()
        split_shard(splitting, layout, PARENT, "me", when_it_is_copied)
        assert reader.execute(everything).fetchall() == before == [(1, PAGES), (2, len(OTHERS))]
        reader.rollback()
        after = reader.execute(everything).fetchall()
    assert seen == [1, 2]
    assert after == [(1, 60), (2, 22), (4, 60), (7, 60), (10, 60)]


def test_who_writes_a_shard_that_is_held_stops_its_split(
    filled, layout, command, estimator, monkeypatch
):
    held(filled)
    monkeypatch.setattr(copies, "_bring_up_to_date", lambda *_: None)

    def go_on():
        erase(estimator, URLS[1:2])
        estimator.commit()

    with pytest.raises(StoreMismatch, match="pages of shard 1 came or went"):
        split_shard(command, layout, PARENT, "me", go_on)
    assert read_layout(command) == layout
    assert without_partitions(command, FAMILY) == [4, 7, 10]


def test_nothing_is_copied_while_an_import_is_under_way(filled, layout, command):
    held(filled)
    reached = []
    with connect(filled, "test", autocommit=True) as importing:
        importing.execute("SELECT pg_advisory_lock(%s)", (WRITER_LOCK,))
        with pytest.raises(StoreBusy):
            split_shard(command, layout, PARENT, "me", lambda: reached.append(1))
    assert not reached


def test_a_shard_without_hosts_is_empty_and_one_that_has_some_must_have_a_table(
    filled, layout, command
):
    assert load_shard(filled, 4).pages.page_ids.size == 0
    assert load_for_learning(filled, 4).pages.page_ids.size == 0
    everything = Purgeable(any_status=True)
    assert sum(count_purgeable(Databases.alone(filled), everything)) == PAGES + len(OTHERS)
    held(filled)
    split_shard(command, layout, PARENT, "me")
    assert load_shard(filled, 4).pages.page_ids.size == PAGES / 4
    assert sum(count_purgeable(Databases.alone(filled), everything)) == PAGES + len(OTHERS)
    command.execute("DROP TABLE pages_4")
    for load in (load_shard, load_for_learning):
        with pytest.raises(psycopg.errors.UndefinedTable):
            load(filled, 4)


def tables(connection):
    """Of each partition: columns, options, constraints, indexes, and who may what."""
    rows = connection.execute(
        "SELECT relname, reloptions::text, "
        "(SELECT array_agg(acl::text ORDER BY acl::text) FROM unnest(relacl) AS acl), "
        "(SELECT array_agg((attname, atttypid, attnotnull, attstorage, "
        "    (SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef "
        "     WHERE adrelid = attrelid AND adnum = attnum))::text ORDER BY attname) "
        " FROM pg_attribute WHERE attrelid = part.oid AND attnum > 0), "
        "(SELECT array_agg((contype, pg_get_constraintdef(con.oid), conislocal, coninhcount)::text "
        "    ORDER BY contype, pg_get_constraintdef(con.oid)) "
        " FROM pg_constraint AS con WHERE conrelid = part.oid), "
        "(SELECT array_agg((indisvalid, indisprimary, ind.relispartition)::text) FROM pg_index "
        " JOIN pg_class AS ind ON ind.oid = indexrelid WHERE indrelid = part.oid) "
        "FROM pg_class AS part WHERE relispartition AND relkind = 'r' AND relname LIKE 'page%'"
    ).fetchall()
    return {name: found for name, *found in rows}


def test_new_partitions_are_like_those_of_before_and_a_migration_changes_nothing(
    filled, layout, command
):
    assert migrate(filled, SHARDS) == GROWN
    assert without_partitions(command, range(GROWN)) == list(range(SHARDS, GROWN))
    held(filled)
    split_shard(command, layout, PARENT, "me")
    assert migrate(filled, GROWN) == GROWN
    assert without_partitions(command, range(GROWN)) == [
        shard for shard in range(SHARDS, GROWN) if shard not in FAMILY
    ]
    found = tables(command)
    for table in ("pages", "page_urls"):
        for shard in FAMILY[1:]:
            assert found[f"{table}_{shard}"] == found[f"{table}_{PARENT}"]
    before = found
    import_pages(filled, SHARDS, [page_batch([url_of(4, "imported")])], now=NOW)
    assert tables(command) == before


def test_who_may_read_the_parents_pages_may_read_those_that_came_of_it(filled, layout, command):
    held(filled)
    command.execute("GRANT SELECT ON pages_1 TO PUBLIC")
    split_shard(command, layout, PARENT, "me")
    found = tables(command)
    privileges = found["pages_4"][1]
    assert privileges == found["pages_1"][1]
    assert {privilege.partition("/")[0] for privilege in privileges} > {
        "freshet_scheduler=r",
        "=r",
    }
    assert found["page_urls_10"][1] == found["page_urls_1"][1]
