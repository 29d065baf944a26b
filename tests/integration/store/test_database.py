"""The store on a real PostgreSQL: schema, bulk statements, snapshots, imports."""

from threading import Timer

import numpy as np
import psycopg
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from page_batches import page_batch
from store_contents import NOW, SHARDS, changed_columns, fill, urls_of, urls_of_shard

from migrations.engine import alchemy_engine
from migrations.upgrade import alembic_config, migrate
from shared.contracts.identity import host_id_of, identify
from shared.contracts.messages import Allotment, Multipliers
from shared.store import writer
from shared.store.binary import Blobs
from shared.store.columns import HOST_RULES
from shared.store.connection import connect, connect_writer
from shared.store.deployment import StoreMismatch, check_deployment
from shared.store.history import DEPTH
from shared.store.imports import import_pages
from shared.store.models_outside import ALL_TABLES
from shared.store.multipliers import (
    Decided,
    append_multipliers,
    last_multipliers,
    row_of,
)
from shared.store.page_parts import DamagedStore
from shared.store.page_status import AWAY, GONE, NEVER, REMOVED, STATUS_NAMES
from shared.store.positions import (
    ESTIMATOR,
    Superseded,
    advance_positions,
    raise_positions,
    read_positions,
)
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.status import store_status
from shared.store.writer_lock import StoreBusy, share_writer_lock


def test_arrays_go_to_the_server_and_come_back(database_url):
    with connect(database_url, "test") as connection:
        for array in (
            np.array([np.inf, -np.inf, 0.1, np.nan]),
            np.array([1.5, -np.inf], np.float32),
            np.array([-(1 << 63), 5]),
            np.array([7], np.int32),
            np.array([-3], np.int16),
            np.array([True, False]),
            np.empty(0),
        ):
            [back] = connection.execute("SELECT %s", (array,), binary=True).fetchone()
            assert back.dtype == array.dtype
            np.testing.assert_array_equal(back, array)
        blobs = Blobs(np.frombuffer(b"a\0bc", np.uint8), np.array([0, 2, 2, 4]))
        found = connection.execute(
            "SELECT substr(%s::bytea, begins, length) "
            "FROM unnest(%s::int4[], %s::int4[]) AS of (begins, length)",
            blobs.slices,
        ).fetchall()
        assert found == [(b"a\0",), (b"",), (b"bc",)]


def test_the_models_are_what_the_migrations_make(store):
    def ours(_obj, name, kind, _reflected, _compared):
        return kind != "table" or not name.rpartition("_")[2].isdigit()

    with alchemy_engine(store).connect() as connection:
        context = MigrationContext.configure(connection, opts={"include_object": ours})
        differences = compare_metadata(context, ALL_TABLES)
    assert [d for d in differences if "alembic_version" not in str(d)] == []


def test_migrating_down_leaves_nothing_and_up_again_works(store):
    with alchemy_engine(store).begin() as connection:
        command.downgrade(alembic_config(connection), "base")
    with psycopg.connect(store) as connection:
        left = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace "
            "AND relkind IN ('r', 'p', 'v')"
        ).fetchall()
    assert left == [("alembic_version",)]
    migrate(store, SHARDS)
    migrate(store, SHARDS)


def test_the_number_of_shards_is_fixed(store):
    with pytest.raises(StoreMismatch, match=f"made for {SHARDS} shards, but the settings say 5"):
        migrate(store, 5)
    with connect(store, "test") as connection:
        check_deployment(connection, SHARDS)
        with pytest.raises(StoreMismatch, match=f"FRESHET_PARTITIONS={SHARDS}"):
            check_deployment(connection, 5)


def test_a_database_without_tables_is_told(database_url):
    with (
        connect(database_url, "test") as connection,
        pytest.raises(StoreMismatch, match="freshet migrate"),
    ):
        check_deployment(connection, SHARDS)


def test_an_import_adds_pages_that_a_snapshot_has(store):
    urls = urls_of_shard(1, 500)
    report = fill(store, urls, importance=np.arange(500.0), crawled_at=np.full(500, NOW - 5))
    assert (report.read, report.added, report.updated, report.refused) == (500, 500, 0, 0)
    snapshot = load_shard(store, 1)
    pages = snapshot.pages
    expected = sorted((identify(url).page_id, url, number) for number, url in enumerate(urls))
    assert pages.page_ids.tolist() == [page_id for page_id, _, _ in expected]
    assert pages.importance.tolist() == [number for _, _, number in expected]
    assert pages.max_age_days.tolist() == [np.inf] * 500
    assert set(pages.last_crawled_at) == set(pages.last_attempt_at) == {NOW - 5}
    assert set(pages.last_signal_at) == {NEVER}
    assert urls_of(snapshot) == [url for _, url, _ in expected]
    hosts = snapshot.hosts
    assert hosts.host_ids.tolist() == sorted(map(host_id_of, hosts.names))
    assert len(hosts.names) == 5
    assert np.isnan(hosts.rules["max_crawls_per_second"]).all()
    assert load_shard(store, 0).pages.page_ids.size == 0
    assert urls_of(load_shard(store, 0)) == []


def unvisited_blocks(url):
    """Of tables of pages, those whose rows a reader would have to look after."""
    with connect(url, "test") as connection:
        return connection.execute(
            "SELECT sum(relpages - relallvisible) FROM pg_class "
            "WHERE relname ~ '^page(s|_urls)_[0-9]+$'"
        ).fetchone()[0]


def test_a_large_import_leaves_nothing_to_its_first_reader(store):
    fill(store, urls_of_shard(1, 500))
    assert unvisited_blocks(store) == 0


def test_an_import_updates_known_pages_and_reports_bad_rows(store):
    [url, other] = urls_of_shard(0, 2)
    fill(store, [url])
    report = import_pages(
        store,
        SHARDS,
        [
            page_batch([url, "ftp://x/", "nonsense"], importance=np.array([9.0, 1.0, 1.0])),
            page_batch([other, other], importance=np.array([np.nan, 2.0])),
        ],
        now=NOW + 1,
    )
    assert (report.read, report.added, report.updated, report.refused) == (5, 1, 1, 3)
    assert [reason.partition(":")[0] for reason in report.reasons] == ["row 2", "row 3", "row 4"]
    assert sorted(load_shard(store, 0).pages.importance) == [2.0, 9.0]


def test_an_import_waits_for_no_estimator_but_says_so(store):
    with connect_writer(store, "estimator") as estimator:
        share_writer_lock(estimator)
        with pytest.raises(StoreBusy, match="page-updates"):
            fill(store, urls_of_shard(0, 1))
    assert fill(store, urls_of_shard(0, 1)).added == 1


def test_an_import_follows_at_once_on_workers_that_end(store):
    with connect_writer(store, "estimator") as estimator:
        share_writer_lock(estimator)
        # The server sees the end of a connection only some time after whoever closed it.
        ending = Timer(0.2, estimator.close)
        ending.start()
        assert fill(store, urls_of_shard(0, 1)).added == 1
        ending.join()


def test_updates_write_every_column_and_stay_hot(store):
    fill(store, urls_of_shard(2, 2000))
    snapshot = load_for_learning(store, 2)
    rows = np.arange(0, 2000, 7)
    with connect_writer(store, "test") as connection:
        for records in range(5):
            columns = changed_columns(snapshot, rows, records=records)
            assert writer.update_pages(connection, columns) == rows.size
            connection.commit()
        connection.execute("SELECT pg_stat_force_next_flush()")
        connection.commit()
        updated, hot = connection.execute(
            "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'pages_2'"
        ).fetchone()
    assert updated == hot == 5 * rows.size
    after = load_for_learning(store, 2)
    for part in (after.pages, after.learning):
        for name in columns.keys() & set(type(part).__slots__):
            np.testing.assert_array_equal(getattr(part, name)[rows], columns[name])
    assert set(after.histories.seen[rows]) == {4}
    assert after.histories.interval_days[rows[0], :5].tolist() == [1.5] * 4 + [0.0]
    assert after.histories.interval_days[rows, 3].tolist() == [1.5 + n for n in range(rows.size)]
    untouched = np.setdiff1d(np.arange(2000), rows)
    np.testing.assert_array_equal(
        after.pages.importance[untouched], snapshot.pages.importance[untouched]
    )


def test_of_removed_pages_a_scheduler_hears_when_and_of_gone_ones_all_as_a_signal_revives_them(
    store,
):
    fill(store, urls_of_shard(1, 10))
    snapshot = load_for_learning(store, 1)
    with connect_writer(store, "test") as connection:
        columns = changed_columns(snapshot, np.arange(4), status=REMOVED, records=DEPTH)
        writer.update_pages(connection, columns)
        gone = changed_columns(snapshot, np.arange(4, 6), status=GONE, records=DEPTH)
        writer.update_pages(connection, gone)
    loaded = load_shard(store, 1)
    pages, removed = loaded.pages, loaded.removed
    assert removed.page_ids.tolist() == snapshot.pages.page_ids[:4].tolist()
    assert removed.removed_at.tolist() == columns["updated_at"].tolist()
    assert pages.page_ids.tolist() == snapshot.pages.page_ids[4:].tolist()
    assert pages.status.tolist() == [GONE] * 2 + [0] * 4
    assert load_for_learning(store, 1).pages.status.tolist() == [REMOVED] * 4 + [GONE] * 2 + [0] * 4


def test_a_large_shard_is_gathered_in_parts(store, monkeypatch):
    fill(store, urls_of_shard(1, 1000))
    whole = load_shard(store, 1)
    monkeypatch.setattr("shared.store.gathering.PART_BYTES", 50_000)
    looks = []
    parts = load_shard(store, 1, lambda: looks.append(1))
    assert len(looks) > 10
    np.testing.assert_array_equal(parts.pages.page_ids, whole.pages.page_ids)
    assert urls_of(parts) == urls_of(whole)
    assert load_for_learning(store, 1).histories.seen.size == 1000


def test_a_page_without_url_is_damage(store):
    fill(store, urls_of_shard(1, 3))
    with connect(store, "test") as connection:
        connection.execute("DELETE FROM page_urls WHERE page_id = (SELECT min(page_id) FROM pages)")
    with pytest.raises(DamagedStore, match="shard 1"):
        load_shard(store, 1)


def test_a_snapshot_is_of_one_moment(store):
    fill(store, urls_of_shard(1, 3))
    with connect(store, "test") as connection:
        advance_positions(connection, ESTIMATOR, {}, {("crawl-outcomes", 1): 5})
        advance_positions(connection, ESTIMATOR, {}, {("crawl-outcomes", 2): 7})
        assert load_shard(store, 1).positions == {}
        connection.commit()
        assert load_shard(store, 1).positions == {("crawl-outcomes", 1): 5}


def test_positions_move_only_from_where_the_writer_believes_them(store):
    first, second = {("a", 0): 3, ("a", 1): 4}, {("a", 0): 9, ("a", 1): 9}
    with connect(store, "test") as connection:
        advance_positions(connection, ESTIMATOR, {}, first)
        advance_positions(connection, ESTIMATOR, first, second)
        connection.commit()
        with pytest.raises(Superseded, match="2 of 2"):
            advance_positions(connection, ESTIMATOR, first, second)
        connection.rollback()
        assert read_positions(connection, ESTIMATOR, [0]) == {("a", 0): 9}
        assert read_positions(connection, "other", [0]) == {}
        raise_positions(connection, ESTIMATOR, {("a", 0): 5, ("a", 1): 12})
        assert read_positions(connection, ESTIMATOR, [0, 1]) == {("a", 0): 9, ("a", 1): 12}


def observation(count):
    return writer.Observations(
        np.zeros(count, np.int16),
        np.arange(count),
        np.full(count, NOW),
        np.full(count, 0.5),
        np.full(count, 2, np.int32),
        np.ones(count, np.bool_),
        np.full(count, 0.1, np.float32),
        np.full(count, 0.45, np.float32),
        np.ones(count, np.int16),
    )


def test_observations_are_appended_and_dropped_by_partition(store):
    later = NOW + 2 * writer.SECONDS_PER_PARTITION
    with connect(store, "test") as connection:
        for time in (NOW, NOW, later):
            writer.ensure_observation_partition(connection, time)
            writer.append_observations(connection, observation(10), time)
        connection.commit()
        count = "SELECT count(*), sum(signals), bool_and(changed) FROM observations"
        assert connection.execute(count).fetchone() == (30, 60, True)
        assert writer.drop_observations_before(connection, later) == 1
        assert connection.execute(count).fetchone() == (10, 20, True)


def test_hosts_are_added_and_changed(store):
    def limits(rate, blocked, most_open, *named):
        return writer.HostLimits(
            np.array([1], np.int16),
            np.array([5]),
            ["h"],
            np.array([(rate, blocked, 2.5, NOW + 3, 7, NOW - 1, most_open, *named)], HOST_RULES),
            np.array([NOW]),
        )

    with connect(store, "test") as connection:
        writer.write_hosts(connection, limits(np.nan, NEVER, 0, b"", NEVER))
        writer.write_hosts(connection, limits(2.5, NOW, 4, b"203.0.113.7", NOW))
    hosts = load_shard(store, 1).hosts
    assert hosts.rules.tolist() == [(2.5, NOW, 2.5, NOW + 3, 7, NOW - 1, 4, b"203.0.113.7", NOW)]
    with connect(store, "test") as connection:
        writer.write_hosts(connection, limits(np.nan, NEVER, 0, b"", NEVER))
        assert connection.execute(
            "SELECT max_open_requests, named_group FROM hosts"
        ).fetchone() == (None, None)
    hosts = load_shard(store, 1).hosts
    assert np.isnan(hosts.rules["max_crawls_per_second"][0])
    assert hosts.rules["blocked_until"].tolist() == [NEVER]
    assert hosts.rules["max_open_requests"].tolist() == [0]


def test_status_counts(store):
    away = urls_of_shard(2, len(AWAY))
    fill(store, urls_of_shard(0, 5) + urls_of_shard(1, 4) + away)
    with connect(store, "test") as connection:
        for status, url in zip(AWAY, away, strict=True):
            change = "UPDATE pages SET status = %s WHERE page_id = %s"
            connection.execute(change, (status, identify(url).page_id))
        connection.execute("UPDATE hosts SET blocked_until = %s WHERE shard = 0", (NOW + 5,))
        raise_positions(connection, ESTIMATOR, {("a", 0): 5, ("a", 1): 12})
    status = store_status(store, NOW)
    assert status["shards"] == SHARDS
    assert (status["pages"]["active"], status["pages"]["never_crawled"]) == (9, 9)
    assert [status["pages"][STATUS_NAMES[name]] for name in AWAY] == [1] * len(AWAY)
    assert sum(status["max_ages"].values()) == 9
    known = 9 + len(AWAY)
    assert (status["hosts"]["known"], status["hosts"]["blocked"]) == (known, 5)
    assert status["positions"] == {ESTIMATOR: {"a": 17}}


def test_multipliers_are_noted(store):
    sent = [
        Decided(Multipliers(n, NOW, NOW + 1, 0.1 * n, 5.0, 0.0, [], "start"), 4.0, 0.8, 2)
        for n in (1, 2)
    ]
    append_multipliers(store, [row_of(one) for one in sent])
    noted = last_multipliers(store, 5)
    assert [(row["version"], row["multiplier"]) for row in noted] == [(2, 0.2), (1, 0.1)]


def test_a_decision_is_noted_with_its_shares_and_its_reason(store):
    sent = Multipliers(
        version=7,
        computed_at=NOW,
        effective_at=NOW + 1,
        multiplier=0.25,
        crawls_per_second=5.0,
        first_slot=0.0,
        allotments=[Allotment(0, 0.25), Allotment(2, 0.75), Allotment(1, 0.0)],
        cause="silent-shard",
        epoch=3,
        leader="one",
        ramp_to=9.0,
        ramp_seconds=60.0,
        why="shard 1 is away",
    )
    append_multipliers(store, [row_of(Decided(sent, 4.5, 0.9, 2, 0.125))])
    [row] = last_multipliers(store, 1, ["silent-shard"])
    assert row.pop("shares") == {0: 0.25, 2: 0.75}
    assert row == {
        "version": 7,
        "computed_at": NOW,
        "effective_at": NOW + 1,
        "multiplier": 0.25,
        "crawls_per_second": 5.0,
        "cause": "silent-shard",
        "why": "shard 1 is away",
        "epoch": 3,
        "leader": "one",
        "ramp_to": 9.0,
        "ramp_seconds": 60.0,
        "achieved_crawls_per_second": 4.5,
        "achieved_ratio": 0.9,
        "live_shards": 2,
        "slot_value": 0.125,
    }
    assert last_multipliers(store, 1, ["bandwidth"]) == []
