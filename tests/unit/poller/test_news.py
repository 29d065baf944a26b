"""What a second reading says that the first did not; dates that cannot be."""

from datetime import UTC, datetime

import pytest

from services.poller.sites.entries import Entry
from services.poller.sites.news import Comparison, Known, pack_known, unpack_known
from shared.discovery.dates import Stated, believable, observed_at, read_date

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0
A, B = "https://a.example/a", "https://a.example/b"


def at(*parts: int) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("2026-03-09", Stated(at(2026, 3, 9), True)),
        # As the schema of sitemaps has dates, too (xsd:date), and ISO 8601.
        ("2026-03-09Z", Stated(at(2026, 3, 9), True)),
        ("2026-03-09+02:00", Stated(at(2026, 3, 8, 22), True)),
        ("2026-03-09-05:00", Stated(at(2026, 3, 9, 5), True)),
        ("20260309", Stated(at(2026, 3, 9), True)),
        ("2026-W11-1", Stated(at(2026, 3, 9), True)),
        ("2026-03-09t10:00:00z", Stated(at(2026, 3, 9, 10), False)),
        (" 2026-03-09T10:00:00+02:00\n", Stated(at(2026, 3, 9, 8), False)),
        ("2026-03-09T10:00Z", Stated(at(2026, 3, 9, 10), False)),
        ("2026-03-09T10:00:00.25Z", Stated(at(2026, 3, 9, 10) + 0.25, False)),
        ("2026-03-09T10:00:00", Stated(at(2026, 3, 9, 10), False)),
        ("Mon, 09 Mar 2026 10:00:00 GMT", Stated(at(2026, 3, 9, 10), False)),
        *((text, None) for text in ("", "2026", "2026-03", "yesterday", "0000-00-00", "9" * 300)),
        *((text, None) for text in ("1969-01-01", "0001-01-01T00:00:00+23:59", "2026-02-30")),
    ],
)
def test_dates_are_read_as_sitemaps_and_feeds_write_them(written, read):
    assert read_date(written) == read


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2026-03-10T11:00Z", NOW - 3600),
        # Of the day that has not ended: now. Of one that has: its end.
        ("2026-03-10", NOW),
        ("2026-03-09", at(2026, 3, 10)),
        # Less than a day ahead: a time zone that was mistaken.
        ("2026-03-11T11:00Z", NOW),
        ("2026-03-11", NOW),
        ("2026-03-11T13:00Z", None),
        ("2026-10-03", None),
        ("2099-01-01", None),
        ("9999-12-31T23:59:59Z", None),
    ],
)
def test_no_signal_is_of_the_future_and_years_to_come_say_nothing(written, seconds):
    stated = believable(read_date(written), NOW)
    assert (None if stated is None else observed_at(stated, NOW)) == seconds


def compared(known, *entries, feed=False):
    comparison = Comparison(known, NOW, 7 * DAY)
    for entry in entries:
        comparison.give(Entry(*entry))
    if feed:
        comparison.undated_are_of_now()
    return comparison


def again(comparison):
    return unpack_known(pack_known(comparison.dates), is_first=False)


def said(comparison):
    return [(news.url, news.is_new, news.signals) for news in comparison.news]


FIRST = Known({}, True)


def test_the_first_reading_makes_pages_and_no_signals():
    first = compared(FIRST, (A, "2026-03-10T11:00Z"), (B, ""), (A, ""), feed=True)
    assert said(first) == [(A, True, False), (B, True, False)]
    assert said(compared(again(first), (A, "2026-03-10T11:00Z"), (B, ""))) == []


def test_dates_that_move_on_are_signals_and_new_addresses_are_pages():
    first = again(compared(FIRST, (A, "2026-03-01"), (B, "")))
    second = compared(first, (A, "2026-03-10T11:00Z"), (B, "2026-03-10"), (B + "2", "2026-03-09"))
    assert said(second) == [(A, False, True), (B, False, True), (B + "2", True, True)]
    assert [news.is_exact for news in second.news] == [True, False, False]
    assert second.news[0].observed_at == NOW - 3600


def test_dates_that_go_back_or_cannot_be_say_nothing_and_are_not_kept():
    first = again(compared(FIRST, (A, "2026-03-09"), (B, "2026-03-09")))
    second = compared(first, (A, "2026-03-02"), (B, "2027-01-01"))
    assert said(second) == []
    # Nor when the other server of the site answers again.
    assert said(compared(again(second), (A, "2026-03-09"), (B, "2026-03-09"))) == []
    assert said(compared(again(second), (B, "2026-03-10"))) == [(B, False, True)]


OLD, NEWER, NEWEST = "2026-03-09T10:00Z", "2026-03-10T10:00Z", "2026-03-10T11:00Z"


@pytest.mark.parametrize(
    "dates", [(OLD, NEWEST), (NEWEST, OLD), (NEWER, NEWEST), (NEWEST, NEWER), (NEWEST, NEWEST, "")]
)
def test_an_address_that_is_named_twice_is_news_once_of_its_latest_date(dates):
    named = [(A, date) for date in dates]
    second = compared(again(compared(FIRST, (A, OLD), (A, OLD))), *named)
    assert [(news.is_new, news.observed_at) for news in second.news] == [(False, NOW - 3600)]
    assert compared(again(second), *named).news == []
    # Of a page that was not there before, too.
    for feed in (False, True):
        new = compared(again(compared(FIRST, (B, ""))), *named, feed=feed)
        assert [(news.is_new, news.observed_at) for news in new.news] == [(True, NOW - 3600)]


def test_what_is_older_than_signals_may_be_is_a_page_at_most():
    first = again(compared(FIRST, (A, "2020-01-01")))
    assert said(compared(first, (A, "2021-01-01"), (B, "2021-01-01"))) == [(B, True, False)]


def test_an_entry_of_a_feed_is_news_without_a_date_and_one_of_a_sitemap_is_not():
    first = again(compared(FIRST, (A, "")))
    assert said(compared(first, (B, ""))) == [(B, True, False)]
    [news] = compared(first, (B, ""), feed=True).news
    assert news.signals
    assert news.observed_at is None


def test_what_is_forgotten_is_looked_at_anew():
    comparison = compared(FIRST, (A, ""), (B, ""))
    comparison.forget(A)
    assert said(compared(again(comparison), (A, ""), (B, ""))) == [(A, True, False)]


@pytest.mark.slow(1)
def test_a_full_sitemap_takes_600_kb():
    full = compared(FIRST, *((f"{A}/{n}", "2026-03-01") for n in range(50_000)))
    assert len(pack_known(full.dates)) == 600_000
    assert again(full).dates == full.dates
