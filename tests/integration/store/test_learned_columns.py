"""What was learned of pages and hosts, on a real PostgreSQL: stored, loaded, explained."""

import numpy as np
import pytest
from store_contents import NOW, changed_columns, fill, urls_of_shard

from shared.contracts.identity import identify
from shared.policy.estimation.quiet_pages import QuietPages
from shared.store import host_reading, writer
from shared.store.connection import connect, connect_writer
from shared.store.directories import directory_of
from shared.store.explain import explain_page
from shared.store.gathering import reading
from shared.store.history import Rings, pack
from shared.store.host_factors import HostFactors, pack_factors
from shared.store.hosts import HostLearning, pack_hosts, pack_sources
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.source_times import NO_SIGNAL, SourceTimes, pack_source_times


@pytest.mark.parametrize("at_once", [2, 5, 100_000])
def test_what_was_learned_of_hosts_is_in_both_snapshots(store, monkeypatch, at_once):
    monkeypatch.setattr(host_reading, "HOSTS_AT_ONCE", at_once)
    fill(store, urls_of_shard(1, 10))
    before = load_shard(store, 1).hosts
    assert before.prior_shape / before.prior_rate == pytest.approx([1 / 60] * 5)
    assert before.sources == [[]] * 5
    chosen = np.array([0, 3])
    learning = HostLearning.initial(2)
    learning.precision[:] = [0.9, 0.2, 0.3, 0.4]
    learning.signals[1] = [3, 1, 0, 0]
    learning.expected_changes[1] = np.arange(1.0, 7.0)
    estimates = writer.HostEstimates(
        np.ones(2, np.int16),
        before.host_ids[chosen],
        np.array([0.5, 2.0]),
        np.array([10.0, 4.0]),
        -np.expm1(-learning.evidence),
        [pack_sources(["feed"]), pack_sources(["a", "b"])],
        pack_hosts(learning),
        QuietPages(np.array([1.5, 0.0]), np.array([7.0, 3.0]), np.array([0.4, 1.0])),
    )
    with connect_writer(store, "test") as connection:
        assert writer.update_hosts(connection, estimates) == 2
    for hosts in (load_shard(store, 1).hosts, load_for_learning(store, 1).hosts):
        assert (hosts.prior_shape / hosts.prior_rate)[chosen].tolist() == [0.05, 0.5]
        assert [hosts.sources[row] for row in (0, 1, 3)] == [["feed"], [], ["a", "b"]]
        for stored, column in zip(hosts.learning.take(chosen), learning, strict=True):
            np.testing.assert_array_equal(stored, column)
        assert [column[chosen].tolist() for column in hosts.quiet] == [
            [1.5, 0.0],
            [7.0, 3.0],
            [0.4, 1.0],
        ]
        assert [column[1] for column in hosts.quiet] == [0.0, 0.0, 1.0]
    with connect(store, "test") as connection:
        rates = connection.execute(
            "SELECT count(*), min(unsignalled_change_rate), max(unsignalled_change_rate), "
            "max(precision) FROM page_estimates WHERE shard = 1"
        ).fetchone()
    assert rates == (10, pytest.approx(1 / 60), 0.5, pytest.approx(0.9))


def test_how_a_session_reads_is_as_before_once_hosts_were_asked_for_at_once(store):
    fill(store, urls_of_shard(1, 10))
    with reading(store) as reader:
        how = "SELECT name, setting FROM pg_settings WHERE name IN (%s, %s)"
        names = "enable_indexscan", "effective_io_concurrency"
        before = reader.connection.execute(how, names).fetchall()
        host_reading.warm_hosts(reader.connection, 1)
        assert reader.connection.execute(how, names).fetchall() == before
        assert len(host_reading.read_hosts(reader.connection, 1).names) == 5


def test_pages_that_never_changed_are_told_as_far_as_they_are_believed(store):
    urls = urls_of_shard(1, 3)
    fill(store, urls)
    rows = np.array([0, 1])
    learned = {
        "unsignalled_change_rate": np.full(2, 0.5),
        "last_changed_at": np.array([NOW, -np.inf]),
        "signal_rate": np.zeros(2),
    }
    snapshot = load_for_learning(store, 1)
    columns = changed_columns(snapshot, rows, records=2) | learned
    with connect_writer(store, "test") as connection:
        writer.update_pages(connection, columns)
        connection.execute("UPDATE hosts SET quiet_belief = 0.4")
    with connect(store, "test") as connection:
        rates = connection.execute(
            "SELECT unsignalled_change_rate FROM page_estimates WHERE shard = 1 ORDER BY page_id"
        ).fetchall()
    assert [rate for (rate,) in rates] == pytest.approx([0.5, 0.2, 0.4 / 60])
    by_id = sorted(urls, key=lambda url: identify(url).page_id)
    told = [explain_page(store, url) for url in by_id]
    parameters = [one["parameters"]["unsignalled_change_rate"] for one in told]
    assert parameters == pytest.approx([0.5, 0.2, 0.4 / 60])
    assert {one["host"]["quiet_belief"] for one in told} == {0.4}


def test_factors_of_hosts_are_in_both_snapshots_and_in_what_is_explained(store):
    [url] = urls_of_shard(1, 1)
    fill(store, [url])
    [host_id] = load_shard(store, 1).hosts.host_ids
    factors = HostFactors(
        np.array([0.5, 1.0, 2.0, 2.0, 2.0, 3.0, 3.0]),
        np.array([directory_of(url)], np.uint16),
        np.array([10.0]),
    )
    with connect_writer(store, "test") as connection:
        shards, hosts = np.ones(1, np.int16), np.array([host_id])
        refitted = writer.RefittedFactors(shards, hosts, [pack_factors(factors)])
        writer.update_factors(connection, refitted)
    for_learning = load_for_learning(store, 1)
    for hosts in (load_shard(store, 1).hosts, for_learning.hosts):
        [stored] = hosts.factors
        for mine, theirs in zip(factors, stored, strict=True):
            assert mine.tolist() == theirs.tolist()
    assert for_learning.directories.tolist() == [directory_of(url)]
    parameters = explain_page(store, url)["parameters"]
    assert parameters["unsignalled_change_rate"] == pytest.approx(5.0 / 60)
    assert parameters["change_rate"] == pytest.approx(5.0 / 60)


def test_what_waits_since_the_last_crawl_is_in_a_schedulers_snapshot(store):
    fill(store, urls_of_shard(1, 10))
    snapshot = load_for_learning(store, 1)
    columns = changed_columns(snapshot, np.array([4]))
    rings = Rings.empty(1)
    rings.pending[0], rings.multiplier[0] = [1, 0, 2, 7], 0.5
    with connect_writer(store, "test") as connection:
        writer.update_pages(connection, columns | {"history": pack(rings, np.array([0]))})
    for_scheduler = load_shard(store, 1)
    assert for_scheduler.pending[4].tolist() == [1, 0, 2, 7]
    assert for_scheduler.pending[5].tolist() == [0, 0, 0, 0]
    assert for_scheduler.multipliers[3:6].tolist() == [1.0, 0.5, 1.0]


def test_times_of_signals_by_source_are_in_both_snapshots(store):
    fill(store, urls_of_shard(1, 10))
    rows = np.array([2, 4, 5, 9])
    columns = changed_columns(load_for_learning(store, 1), rows)
    ages = np.array([[0, 128, NO_SIGNAL, 12_800], [256, 0, 5, NO_SIGNAL]], np.uint32)
    times = SourceTimes()
    entries = np.zeros(4, np.int32)
    entries[[0, 3]] = times.add(ages)
    packed = {"signal_times": pack_source_times(times.ages, entries)}
    with connect_writer(store, "test") as connection:
        assert writer.update_pages(connection, columns | packed) == 4
    for snapshot in (load_shard(store, 1), load_for_learning(store, 1)):
        assert snapshot.by_source.rows.tolist() == [2, 9]
        assert snapshot.by_source.ages.tolist() == ages.tolist()


def test_explain_tells_all_about_a_page(store):
    [url] = urls_of_shard(1, 1)
    fill(store, [url])
    snapshot = load_for_learning(store, 1)
    columns = changed_columns(snapshot, np.array([0]), records=2) | {
        "unsignalled_change_rate": np.array([0.5]),
        "signal_evidence": np.array([np.log(2)]),
        "signal_rate": np.array([1.0]),
        "last_crawled_at": np.array([NOW]),
        "max_age_days": np.array([np.inf]),
    }
    with connect_writer(store, "test") as connection:
        writer.update_pages(connection, columns)
    told = explain_page(store, url.upper().replace("/PAGE", "/page") + "#x")
    assert (told["url"], told["status"], told["shard"]) == (url, "active", 1)
    assert told["state"]["max_age_days"] is None
    parameters = told["parameters"]
    assert parameters["change_rate"] == pytest.approx(1.0)
    assert parameters["precision"] == pytest.approx(0.5)
    assert parameters["recall"] == pytest.approx(0.5)
    assert parameters["signal_time_equivalent"] == pytest.approx(2 * np.log(2))
    assert [crawl["crawled_at"] for crawl in told["crawls"]] == [NOW, NOW - 1.5 * 86_400]
    assert told["host"]["host"] == identify(url).host
    assert explain_page(store, url + "x") is None


def test_explain_says_what_holds_for_a_page_that_was_never_observed(store):
    [url] = urls_of_shard(1, 1)
    fill(store, [url])
    parameters = explain_page(store, url)["parameters"]
    assert parameters["unsignalled_change_rate"] == pytest.approx(1 / 60)
    assert parameters["signal_evidence"] == pytest.approx(np.log(2))
    assert parameters["signal_rate"] == 0.0
