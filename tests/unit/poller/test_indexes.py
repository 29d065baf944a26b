"""What an index of sitemaps names, and what it names no more."""

import math

import pytest

from services.poller.sites.entries import Entry
from services.poller.sites.indexes import children_of, named_no_more
from services.poller.sites.news import Comparison, Known, pack_known, unpack_known
from shared.store.watched import INDEX, DueSource

NOW = 1_767_225_600.0
HOSTS = ["a.example", "www.a.example"]
DUE = DueSource(
    *("https://a.example/index.xml", "https://a.example/", "a.example", "site:a", INDEX, "robots"),
    *("", "", b"", b"", 0.0, 0, -math.inf, False, 0.0, 0.0, 0.0, HOSTS, [], []),
)
SHOP = "https://a.example/products_1.xml?from=1&to="
"""Shops name their sitemaps by the first and the last product in them."""


def compared(known, urls):
    comparison = Comparison(known, NOW, 1e9)
    for url in urls:
        comparison.give(Entry(url, ""))
    return comparison


def test_sitemaps_of_the_sites_hosts_are_children_however_they_are_written():
    written = ["/1.xml", "https://WWW.a.example:443/2.xml", "https://b.example/3.xml", "http://["]
    comparison = compared(Known({}, is_first=True), written)
    assert {at: child.url for at, child in children_of(DUE, DUE.url, comparison).items()} == {
        "/1.xml": "https://a.example/1.xml",
        "https://WWW.a.example:443/2.xml": "https://www.a.example/2.xml",
    }


class Readings:
    """An index that is read again and again; what is watched because of it."""

    def __init__(self):
        self.known, self.watched = Known({}, is_first=True), set()

    def read(self, *urls):
        comparison = compared(self.known, urls)
        children = children_of(DUE, DUE.url, comparison).values()
        self.watched -= set(named_no_more(sorted(self.watched), children, comparison))
        self.watched |= {child.url for child in children}
        self.known = unpack_known(pack_known(comparison.remembered), is_first=False)
        return self.watched


def test_sitemaps_whose_names_change_with_each_product_do_not_pile_up():
    readings = Readings()
    for last in range(100):
        watched = readings.read("https://a.example/pages.xml", f"{SHOP}{last}")
        assert len(watched) <= 3
    assert watched >= {"https://a.example/pages.xml", f"{SHOP}99"}
    assert f"{SHOP}90" not in watched


def test_servers_that_differ_by_turns_and_one_that_names_nothing_take_nothing_away():
    readings = Readings()
    both = readings.read("https://a.example/1.xml", "/2.xml") | set()
    for _ in range(3):
        assert readings.read() == both
    readings.read("https://a.example/1.xml", "https://a.example/2.xml")
    for _ in range(3):
        assert readings.read("https://a.example/1.xml") == both
        assert readings.read("https://a.example/1.xml", "https://a.example/2.xml") == both


@pytest.mark.parametrize(
    "written",
    ["/1.xml", "https://A.example/1.xml", "https://a.example:443/1.xml", "/x/../1.xml"],
)
def test_a_sitemap_that_one_reading_omits_stays_however_it_is_written(written):
    readings = Readings()
    both = readings.read(written, "/2.xml") | set()
    assert both == {"https://a.example/1.xml", "https://a.example/2.xml"}
    for _ in range(3):
        assert readings.read("/2.xml") == both
        assert readings.read(written, "/2.xml") == both
    readings.read("/2.xml")
    assert readings.read("/2.xml") == {"https://a.example/2.xml"}


def test_a_date_of_a_sitemap_is_the_same_however_it_is_written():
    first = Comparison(Known({}, is_first=True), NOW, 1e9)
    first.give(Entry("/1.xml", "2025-12-31"))
    children_of(DUE, DUE.url, first)
    second = Comparison(Known(first.remembered, is_first=False), NOW, 1e9)
    second.give(Entry("https://a.example/1.xml", "2025-12-31"))
    assert second.news == []
    assert len(first.dates) == 1, "it is one entry"
