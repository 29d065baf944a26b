"""What becomes of links, by the rules and by what is known."""

from collections import Counter

import pytest

from shared.contracts.identity import identify
from shared.discovery.admission import FEW, REMEMBERED_SECONDS, Admission, Link
from shared.discovery.rules import DiscoveryRules
from shared.discovery.updates import BEHIND_SECONDS, Said, updates_by_place
from shared.runtime.settings import Settings


class Database:
    """What it would say, and what it was asked."""

    def __init__(self, pages=(), removed_hosts=()):
        self.there = {identify(url).page_id: identify(url) for url in pages}
        self.removed_hosts = set(removed_hosts)
        self.let = {}
        self.asked = []

    async def pages(self, pages):
        self.asked += [page.url for page in pages]
        return {page.page_id for page in pages} & self.there.keys()

    async def hosts(self, hosts, now):
        return {page.host for page in self.there.values()} & set(hosts) - self.removed_hosts

    async def let_in(self, pages, most, now):
        found = {}
        for page in pages:
            counts = Counter(page.host for page in (self.there | self.let).values())
            has_room = page.page_id in self.let or counts[page.host] < most
            found[page.page_id] = "new" if has_room else "quota"
            if has_room:
                self.let[page.page_id] = page
        return found


def admission(database, most_remembered=1000, **settings):
    rules = DiscoveryRules.of(Settings(**settings))
    return Admission(rules, database, most_remembered)


async def judged(admission, *urls, now=0.0):
    return [was.became for was in await admission.judge([Link(u, 1, 0.0) for u in urls], now)]


async def test_unless_said_otherwise_links_add_pages_to_hosts_that_have_some():
    database = Database(["https://a.example/1"])
    verdicts = await judged(
        admission(database), "https://a.example/1#top", "https://a.example/2", "https://b.example/"
    )
    assert verdicts == ["known", "new", "host"]
    # The database is not asked for pages of hosts that are not wanted.
    assert database.asked == ["https://a.example/1", "https://a.example/2"]


async def test_a_host_whose_pages_were_all_removed_is_not_known_any_more():
    database = Database(["https://a.example/1"], removed_hosts=["a.example"])
    assert await judged(admission(database), "https://a.example/2") == ["host"]
    named = admission(database, discovery_hosts=["a.example"])
    # One that was removed stays so, though its host is wanted.
    assert await judged(named, "https://a.example/2", "https://a.example/1") == ["new", "known"]


async def test_a_host_gets_no_more_pages_than_its_quota():
    database = Database(f"https://a.example/{n}" for n in range(7))
    some = admission(database, discovery_most_pages_of_host=10, discovery_hosts=["any"])
    links = [f"https://a.example/more/{n}" for n in range(5)]
    assert await judged(some, *links) == ["new"] * 3 + ["quota"] * 2
    # They are on their way, and count; another host has a quota of its own.
    assert await judged(some, "https://a.example/last", "https://b.example/") == ["quota", "new"]


async def test_what_is_known_is_not_asked_for_again_as_long_as_there_is_room():
    database = Database(["https://a.example/1"])
    some = admission(database, most_remembered=2)
    new = await some.judge([Link("https://a.example/2", None, 0.0)], 0.0)
    some.remember([new[0].page], 0.0)
    assert await judged(some, "https://a.example/1", "https://a.example/2") == ["known", "known"]
    database.asked.clear()
    assert await judged(some, "https://a.example/1", "https://a.example/2") == ["known", "known"]
    assert database.asked == []
    database.there[identify("https://a.example/3").page_id] = identify("https://a.example/3")
    await judged(some, "https://a.example/2", "https://a.example/3")
    await judged(some, "https://a.example/1")
    assert database.asked[-1] == "https://a.example/1"


@pytest.mark.parametrize("is_published", [False, True])
async def test_a_page_that_was_erased_is_new_again_however_often_links_lead_there(is_published):
    url = "https://a.example/1"
    database = Database([url, "https://a.example/2"])
    some = admission(database)
    if is_published:  # It came within ten minutes of the erasure: estimators left it out.
        del database.there[identify(url).page_id]
        some.remember([identify(url)], 0.0)
    assert await judged(some, url) == ["known"]
    database.there.pop(identify(url).page_id, None)
    for minute in range(1, 60):
        assert await judged(some, url, now=60.0 * minute) == ["known"]
    assert await judged(some, url, now=REMEMBERED_SECONDS) == ["new"]


async def test_a_page_that_was_not_published_is_new_again():
    some = admission(Database(["https://a.example/1"]))
    for _ in range(2):
        assert await judged(some, "https://a.example/2") == ["new"]


PAGE = "https://victim.example/news"
TWIN = (
    "https://h00.attacker.example/pppaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbaaaaaaaa9vt82auqaaaaaaaa4i1s3oll"
    "aaaaaaaa7sqq543zaaaaaaaaqe41biqk"
)
"""It has the id of the other page, and was found in ten seconds, as a host's twin is
(`twin_hosts`)."""


def test_a_page_has_a_twin():
    assert identify(PAGE).page_id == identify(TWIN).page_id


@pytest.mark.parametrize("links", [(PAGE, TWIN), (TWIN, PAGE)])
@pytest.mark.parametrize("times", [1, FEW])
async def test_beside_its_twin_no_page_of_a_host_that_is_not_wanted_gets_in(links, times):
    some = admission(Database(["https://victim.example/"]))
    wanted = {PAGE: "new", TWIN: "host"}
    assert await judged(some, *links * times) == [wanted[url] for url in links] * times


async def test_of_two_pages_with_one_id_one_gets_in_and_only_the_database_hides_the_other():
    some = admission(Database(), discovery_hosts=["any"])
    assert await judged(some, TWIN, PAGE) == ["new", "known"]
    some.remember([identify(TWIN)], 0.0)
    assert await judged(some, TWIN, PAGE) == ["known", "new"]


HOSTILE = {
    "mailto:a@a.example": "no-url",
    "javascript:alert(1)": "no-url",
    "//a.example/relative": "no-url",
    "/relative": "no-url",
    "": "no-url",
    "https://user:secret@a.example/": "no-url",
    "https://a.example/\x00": "no-url",
    "https://a.example/%0d%0aSet-Cookie:x": "no-url",
    "https://a.example/\u202egnp.exe": "no-url",
    "https://a.example:0/": "no-url",
    "https://a..example/": "no-url",
    "https://xn--a\x80.example/": "no-url",
    "https://a.example/" + "x" * 2048: "no-url",
    "\ud800": "no-url",
    "https://169.254.169.254/": "private",
    "https://A.EXAMPLE:443/a/../b#c": "new",
    "https://a.example/ü?q=ß": "new",
}


@pytest.mark.parametrize("times", [1, FEW])
async def test_what_pages_write_into_their_links_harms_nobody(times):
    some = admission(Database(["https://a.example/1"]))
    links = list(HOSTILE) * times
    assert await judged(some, *links) == list(HOSTILE.values()) * times


async def test_a_thousand_links_of_two_thousand_characters_each_are_judged_as_any_other():
    some = admission(Database(["https://a.example/1"]))
    links = [f"https://a.example/{n:04}?{'q' * 200}#" for n in range(1000)]
    long = [url + "x" * (2048 - len(url)) for url in links]
    assert await judged(some, *long) == ["new"] * 1000


async def test_what_links_add_is_as_important_as_the_first_pattern_says_that_fits():
    some = admission(
        Database(["https://a.example/1"]),
        discovery_importance={"*/news/*": 5.0, "https://a.example/*": 0.5},
        discovery_classes={"https://a.example/*": "partner"},
    )
    urls = ["https://a.example/news/1", "https://a.example/2", "https://b.example/"]
    pages = [identify(url) for url in urls]
    assert [some.said_of(page) for page in pages] == [
        Said(5.0, "partner"),
        Said(0.5, "partner"),
        Said(),
    ]
    [said] = updates_by_place([(page, 700.0) for page in pages], 1, some.said_of).values()
    assert [b'"importance":5.0' in said[0][1], b'"importance":null' in said[2][1]] == [True, True]
    assert [b'"class":"partner"' in said[0][1], b'"class"' in said[2][1]] == [True, False]
    some.go_by(DiscoveryRules.of(Settings()))
    assert some.said_of(pages[0]) == Said()


def test_a_page_goes_to_its_hosts_shard_with_a_time_before_it_was_found():
    found_at = BEHIND_SECONDS + 5.0
    found = [(identify(f"https://{host}.example/"), found_at) for host in "abc"]
    [one] = updates_by_place(found, 1).values()
    assert [key for key, _ in one] == [b"a.example", b"b.example", b"c.example"]
    assert all(b'"updated_at":5.0' in value for _, value in one)
    assert all(b'"importance":null' in value for _, value in one)
    places = updates_by_place(found, 64)
    assert sum(map(len, places.values())) == 3
    assert all(topic == "page-updates" for topic, _ in places)
