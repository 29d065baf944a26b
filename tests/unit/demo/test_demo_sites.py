"""The demonstration's web is one that the poller can read, and its plan is what its sites do."""

import gzip
from collections import Counter

import pytest

from services.demo import documents
from services.demo.documents import Entry
from services.demo.plan import KINDS, make_plan
from services.demo.report import unwelcome
from services.demo.website import Visit
from services.poller.sites.feeds import read_feed
from services.poller.sites.sitemaps import SitemapReader, TextReader
from shared.discovery.robots import read_robots

PAGES = 16
ORIGIN = "http://127.0.0.1:4000"


@pytest.fixture
def plan():
    return make_plan(2 * len(KINDS), PAGES, 180.0, 1)


def test_a_seed_makes_the_same_web_again_and_another_one_another(plan):
    assert (
        make_plan(2 * len(KINDS), PAGES, 180.0, 1)
        == plan
        != make_plan(2 * len(KINDS), PAGES, 180.0, 2)
    )


def test_the_plan_has_all_that_webs_have(plan):
    kinds = Counter(site.kind.name for site in plan)
    assert set(kinds.values()) == {2}
    for site in plan:
        assert len(site.pages) == PAGES + 1
        assert site.pages["/old/1"].leads_to in site.pages
        assert site.kind.pings == bool(site.pings)
        assert site.kind.busy == (site.busy_for(90.0) == 18.0)
        assert site.busy_for(10.0) == site.busy_for(120.0) == 0.0
    changes = [len(page.changes) for site in plan for page in site.pages.values()]
    assert 0 in changes
    assert max(changes) > 10
    late = [page for site in plan if site.kind.grows for page in site.pages.values()]
    assert any(page.appears_at > 0 for page in late)


def test_a_page_is_what_it_was_last_changed_to(plan):
    site = plan[0]
    page = max(site.pages.values(), key=lambda page: len(page.changes))
    first, second = page.changes[:2]
    between = (first + second) / 2
    assert page.version(first / 2) == 0
    assert page.version(between) == 1
    assert page.changed_at(between) == first
    assert documents.page(site, page.path, 0) != documents.page(site, page.path, 1)


def test_a_careful_site_pings_each_change_and_a_careless_one_more(plan):
    for site in (site for site in plan if site.kind.pings):
        true = {(at, page.path) for page in site.pages.values() for at in page.changes}
        assert true <= set(site.pings)
        assert site.kind.careless == (len(site.pings) > len(true))


def test_all_documents_are_read_as_they_are_meant(plan):
    named = [Entry(f"{ORIGIN}/page/{n}", 1_700_000_000.25 + n) for n in range(3)]
    for site in plan:
        robots = read_robots(documents.robots(site, ORIGIN), "me")
        assert robots.sitemaps == (ORIGIN + documents.sitemap_path(site),)
        assert not robots.allows(f"{ORIGIN}/private/1")
        assert robots.allows(f"{ORIGIN}/page/1")
        found = []
        reader = (TextReader if site.kind.sitemap == "text" else SitemapReader)(found.append)
        body = documents.sitemap(site, named).body
        reader.feed(gzip.decompress(body) if site.kind.packed else body)
        assert reader.close().kind == "sitemap"
        assert [entry.url for entry in found] == [entry.url for entry in named]
        if site.kind.feed:
            entries, _ = read_feed(ORIGIN, documents.feed(site, ORIGIN, named).body)
            assert [entry.url for entry in entries] == [entry.url for entry in named]
            assert all(entry.stated for entry in entries)


def test_a_visit_to_a_site_that_wants_to_be_left_alone_is_counted():
    def visit(at, agent="fleet", wait=0.0):
        return Visit(at, "busy-2", "/page/1", agent, 429 if wait else 200, wait)

    first = visit(10.0, wait=20.0)
    assert unwelcome([first, visit(11.0, wait=19.0)]) == 0, "it was on its way"
    assert unwelcome([first, visit(20.0, wait=10.0)]) == 1
    assert unwelcome([first, visit(20.0, agent="poller")]) == 0, "nobody told the poller"
    assert unwelcome([first, visit(31.0)]) == 0
