"""The rows of watched sites: who takes what, how many there may be, what is kept."""

from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from shared.contracts.identity import identify
from shared.store import watched
from shared.store.known_pages import known_pages
from shared.store.watched import (
    NewSource,
    Pace,
    Reading,
    Site,
    add_site,
    add_sources,
    call_forward,
    count_sources,
    list_sources,
    note_poll_failed,
    note_quiet,
    note_reading,
    remove_site,
    take_due_sources,
)

pytestmark = pytest.mark.postgres

SITE = "https://a.example/"
LATEST = 1e6
"""Seconds; nothing here is put off for longer, but where a clock is wrong."""


@pytest.fixture
def connection(migrated_url):
    with psycopg.connect(migrated_url, autocommit=True) as made:
        yield made


def source(path, host="a.example"):
    return NewSource(f"https://{host}/{path}", host, "site:a", "", "operator")


def watch(connection, *sources):
    add_site(connection, Site(SITE, ["a.example"], [], []))
    return add_sources(connection, SITE, sources)


def take(connection, now=1000.0, most=10, busy=(), held=60.0):
    return [due.url for due in take_due_sources(connection, now, most, busy, held, LATEST)]


def test_each_source_is_held_by_one_and_of_each_host_there_is_one_at_a_time(connection):
    watch(connection, source("1"), source("2"), source("3", "b.example"))
    assert sorted(take(connection)) == ["https://a.example/1", "https://b.example/3"]
    assert take(connection, busy=["a.example"]) == []
    assert take(connection) == ["https://a.example/2"]
    assert take(connection, now=1059.0) == []
    # Nobody said what came of them: their holders are gone.
    assert len(take(connection, now=1061.0)) == 2


def test_many_who_take_at_once_take_each_source_once(connection, migrated_url):
    watch(connection, *(source("x", f"h{n}.example") for n in range(40)))

    def some(_):
        with psycopg.connect(migrated_url, autocommit=True) as own:
            return [url for _ in range(5) for url in take(own, most=3)]

    with ThreadPoolExecutor(8) as threads:
        taken = [url for part in threads.map(some, range(8)) for url in part]
    taken += take(connection, most=100)
    assert sorted(taken) == sorted(f"https://h{n}.example/x" for n in range(40))


def reading(**more):
    values = {
        "kind": "sitemap",
        "etag": '"1"',
        "last_modified": "",
        "digest": b"d",
        "seen": b"s" * 12,
        "polled_at": 1000.0,
        "entries": 1,
        "pages": 1,
        "signals": 2,
        "exact_signals": 1,
        "delay_seconds": 5.0,
    }
    return Reading(**(values | more))


PACE = Pace(100.0, False, 0.0, 0.0, 0.0)


def test_what_came_of_a_poll_is_kept_and_added_up(connection):
    watch(connection, source("1"))
    url = source("1").url
    note_poll_failed(connection, url, "away", 1500.0)
    assert count_sources(connection) == {"well": 0, "failing": 1}
    # What its index says does not call one forward that fails.
    call_forward(connection, SITE, [url])
    assert take(connection) == []
    note_reading(connection, url, reading(), PACE)
    note_reading(connection, url, reading(seen=None, digest=b"e"), PACE)
    note_quiet(connection, url, 1150.0, Pace(200.0, True, 7.0, 2.0, 0.5), '"2"', "today")
    [row] = list_sources(connection)
    assert (row.pages, row.signals, row.exact_signals, row.delay_seconds) == (2, 4, 2, 10.0)
    assert (row.failures, row.reason, row.interval_seconds) == (0, "", 200.0)
    # What failed was asked for, too.
    assert (row.polls, row.by_value) == (4, True)
    assert take(connection, now=1349.0) == []
    call_forward(connection, SITE, [url])
    [due] = take_due_sources(connection, 1349.0, 10, (), 60.0, LATEST)
    assert (due.seen, due.digest, due.etag, due.polled_at) == (b"s" * 12, b"e", '"2"', 1150.0)
    assert due.last_modified == "today"
    assert (due.worth, due.worth_signals, due.worth_days) == (7.0, 2.0, 0.5)


def test_rules_that_change_have_everything_read_anew(connection):
    watch(connection, source("1"))
    note_reading(connection, source("1").url, reading(), PACE._replace(interval_seconds=1e9))
    assert not add_site(connection, Site(SITE, ["a.example", "b.example"], ["*/x/*"], []))
    [due] = take_due_sources(connection, 1000.0, 10, (), 60.0, LATEST)
    assert (due.seen, due.digest, due.etag) == (b"", b"", "")
    assert (due.hosts, due.include) == (["a.example", "b.example"], ["*/x/*"])


def test_a_site_has_no_more_sources_than_there_is_room_for(connection, monkeypatch):
    monkeypatch.setattr(watched, "MOST_SOURCES", 3)
    assert watch(connection, *(source(str(n)) for n in range(2))) == 2
    # The known one is not counted twice.
    assert add_sources(connection, SITE, [source("1")]) == 0
    assert add_sources(connection, SITE, [source(str(n)) for n in range(2, 9)]) == 1
    assert add_sources(connection, SITE, []) == 0
    assert len(remove_site(connection, SITE)) == 3
    assert remove_site(connection, SITE) is None


def test_sources_that_are_there_take_no_room_of_new_ones(connection, monkeypatch):
    monkeypatch.setattr(watched, "MOST_SOURCES", 4)
    watch(connection, source("1"), source("2"), source("3"))
    named = [source(n) for n in ("1", "2", "3", "new", "more")]
    assert add_sources(connection, SITE, named) == 1
    assert watched.count_left_out(connection, named) == 1


def test_sitemaps_of_one_index_are_told_from_those_that_somebody_else_named(connection):
    index, child = source("index"), source("child")._replace(found_by="index")
    other = source("other")._replace(found_by="index", source="site:b")
    watch(connection, index, child, other, source("by-itself")._replace(source="site:c"))
    assert watched.sitemaps_of(connection, SITE, "site:a", index.url) == [child.url]
    watched.drop_sources(connection, SITE, [child.url])
    assert watched.sitemaps_of(connection, SITE, "site:a", index.url) == []
    assert {row.url for row in list_sources(connection)} >= {index.url, other.url}
    # By http as well as by https, say: nobody knows which of them has named what.
    add_sources(connection, SITE, [child, index._replace(url="http://a.example/index")])
    assert watched.sitemaps_of(connection, SITE, "site:a", index.url) == []


def test_no_page_is_known_before_there_is_one(connection):
    assert known_pages(connection, [identify("https://a.example/")]) == set()
    assert known_pages(connection, []) == set()


def test_what_was_put_off_while_a_clock_was_wrong_is_due(connection):
    watch(connection, source("1"))
    note_quiet(connection, source("1").url, 1e9, PACE._replace(interval_seconds=100.0))
    assert take(connection, now=1e9 + 99.0) == []
    assert take(connection, now=1000.0) == ["https://a.example/1"]
    # Now it is held as any other.
    assert take(connection, now=1001.0) == []
