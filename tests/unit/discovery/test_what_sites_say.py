"""robots.txt and links, of sites that mean well and of others."""

import tracemalloc
from urllib.parse import quote

import pytest

from shared.discovery.links import HEADER_CHARACTERS, MOST_FEEDS, Links
from shared.discovery.looking import Found, _note_hub, source_of
from shared.discovery.robots import MOST_SITEMAPS, read_robots, robots_url

AGENT = "Freshet (+https://example.org)"


def test_robots_txt_says_what_is_allowed_to_us_and_how_often():
    robots = read_robots(
        b"User-agent: freshet\nDisallow: /private*/a$\nCrawl-delay: 4\n\n"
        b"User-agent: *\nDisallow: /\n"
        b"Sitemap: https://a.example/1.xml\nsitemap: /2.xml\nSitemap: https://a.example/1.xml\n",
        AGENT,
    )
    assert robots.allows("https://a.example/b")
    assert not robots.allows("https://a.example/private/x/a")
    assert robots.crawl_delay == 4.0
    assert robots.sitemaps == ("https://a.example/1.xml", "/2.xml")
    assert robots_url("https://a.example:8443/x?y=1") == "https://a.example:8443/robots.txt"


@pytest.mark.parametrize(
    "agent",
    [
        "Freshet",
        "freshet/1.0",
        "Freshet/1.0 (+https://example.org/bot)",
        "Freshet (crawl@bot.example.org)",
        "Mozilla/5.0 (compatible; Freshet/1.0; +https://example.org/bot)",
        "Mozilla/5.0 (X11) AppleWebKit/537.36 (compatible; Freshet) Chrome/100",
    ],
)
def test_an_agent_is_who_it_calls_itself_and_not_what_else_it_says_of_itself(agent):
    others = b"bot", b"https", b"example.org", b"crawl", b"Mozilla", b"compatible", b"Chrome"
    theirs = b"".join(b"User-agent: %b\nDisallow: /\n\n" % name for name in others)
    everybody = read_robots(theirs + b"User-agent: *\nDisallow: /x\n", agent)
    assert everybody.allows("https://a.example/")
    assert not everybody.allows("https://a.example/x")
    ours = read_robots(theirs + b"User-agent: FreshET\nDisallow: /y\n", agent)
    assert ours.allows("https://a.example/x")
    assert not ours.allows("https://a.example/y")


def test_an_agent_may_be_called_by_its_version_or_by_what_is_no_name():
    text = b"User-agent: Freshet/1.0\nUser-agent: 7bot\nDisallow: /\n"
    for agent in ("Freshet/1.0 (+https://example.org)", "7bot/2"):
        assert not read_robots(text, agent).allows("https://a.example/")
    assert read_robots(text, "Freshet/2.0").allows("https://a.example/")


@pytest.mark.parametrize(
    "record", ["Crawl-delay: 5", "Noindex: /", "Clean-param: a", "Request-rate: 1/5", "Sitemap: /s"]
)
def test_what_is_no_rule_ends_no_list_of_agents(record):
    robots = read_robots(
        f"User-agent: Freshet\n{record}\n\nUser-agent: Other\nDisallow: /private/\n"
        "User-agent: Another\nDisallow: /\n".encode(),
        AGENT,
    )
    assert not robots.allows("https://a.example/private/x")
    assert robots.allows("https://a.example/")


def test_a_delay_amid_agents_is_for_those_that_were_named():
    text = b"User-agent: %b\nCrawl-delay: 5\nUser-agent: %b\nDisallow: /\n"
    assert read_robots(text % (b"Freshet", b"Other"), AGENT).crawl_delay == 5.0
    assert read_robots(text % (b"Other", b"Freshet"), AGENT).crawl_delay == 0.0


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\xff\xfe\x00" * 1000,
        b"<html>not found</html>",
        b"Crawl-delay: nan\nUser-agent: *\nCrawl-delay: -1\n",
        b"User-agent: *\nDisallow: /" + b"*a" * 20_000 + b"\n",
        b"User-agent: *\n" + b"Disallow: /x\n" * 30_000,
    ],
)
def test_rubbish_in_robots_txt_forbids_nothing_and_ends(text):
    robots = read_robots(text, AGENT)
    assert robots.allows("https://a.example/" + quote("a" * 1000 + "b"))
    assert robots.crawl_delay == 0.0


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_a_mark_in_front_of_robots_txt_and_any_ends_of_lines_change_nothing(end):
    lines = (b"\xef\xbb\xbfUser-agent: *", b"Disallow: /private", b"")
    robots = read_robots(end.join(lines), AGENT)
    assert not robots.allows("https://a.example/private/x")
    assert robots.allows("https://a.example/")


def test_rules_of_very_many_others_are_not_kept_for_each_of_them():
    others = b"".join(b"User-agent: %d-bot\n" % n for n in range(12_000))
    rules = b"".join(b"Disallow: /%d\n" % n for n in range(12_000))
    names = b"User-agent: Other\nUser-agent: FRESHET* # ours\nDisallow: /ours\n"
    tracemalloc.start()
    robots = read_robots(others + rules + names + b"User-agent: *\nDisallow: /\n", AGENT)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000_000
    assert robots.allows("https://a.example/11999")
    assert not robots.allows("https://a.example/ours")
    # Whom nobody calls by name, everybody's rules are for.
    everybody = read_robots(others + rules + b"User-agent: *\nDisallow: /x\n", AGENT)
    assert everybody.allows("https://a.example/11999")
    assert not everybody.allows("https://a.example/x")


def test_what_robots_txt_asks_for_has_limits():
    many = b"".join(b"Sitemap: /%d.xml\n" % n for n in range(10_000))
    robots = read_robots(b"User-agent: *\nCrawl-delay: 100000\n" + many, AGENT)
    assert robots.crawl_delay == 60.0
    assert len(robots.sitemaps) == MOST_SITEMAPS


def links_of(text: str, *headers: str) -> Links:
    links = Links()
    links.note_headers(headers)
    links.feed(text)
    return links


def test_a_page_names_its_feeds_and_its_hub():
    links = links_of(
        '<link rel="alternate home" type="application/rss+xml; charset=utf-8" href="/rss">'
        '<LINK REL=alternate TYPE=application/feed+json HREF=/json><link rel=alternate href="/de">'
        '<link rel="alternate" type="application/rss+xml" href="/rss"><link rel=hub href=/hub>'
        '<body><link rel="alternate" type="application/rss+xml" href="/visitor">',
        '</atom>; rel="alternate"; type="application/atom+xml", </self>; rel=self',
    )
    assert links.feeds == ["/atom", "/rss", "/json"]
    assert (links.hub, links.own) == ("/hub", "/self")


def test_a_header_that_is_broken_hides_no_other_and_costs_no_more_than_it_is_long():
    # What cannot be within brackets is not looked through again from each of them.
    links = links_of("", "<" * 8000, "</broken, </hub>; rel=hub")
    assert links.hub == "/hub"


def test_a_page_with_very_many_feeds_has_some_of_them():
    one = '<link rel=alternate type=application/rss+xml href="/{}">'
    assert len(links_of("".join(one.format(n) for n in range(1000))).feeds) == MOST_FEEDS


def test_a_source_is_named_by_its_place_and_keeps_secrets():
    assert source_of("https://a.example/sitemap.xml") == "site:a.example/sitemap.xml"
    secret = source_of("https://a.example/feed?token=hush")
    assert secret.startswith("site:a.example/feed#")
    assert "hush" not in secret
    assert secret != source_of("https://a.example/feed?token=other")
    assert len(source_of("https://a.example/" + "x" * 1000)) <= 128


def test_of_a_long_header_the_beginning_counts():
    far = "<" * HEADER_CHARACTERS + ', </hub>; rel="hub"'
    assert links_of("", '</feed>; rel="self", ' + far, far).hub is None
    assert links_of("", '</feed>; rel="self", ' + far).own == "/feed"


@pytest.mark.parametrize(
    "said", ['<javascript:x>; rel="self"', '<http://me:pw@a.example/>; rel="self"', "<x>; rel=hub"]
)
def test_a_hub_or_a_name_of_a_feed_that_is_no_url_is_noted_and_stops_nothing(said):
    found, links = Found(), links_of("", said.replace("<x>", "<http://[>"), "</hub>; rel=hub")
    _note_hub(found, "https://a.example/feed", links)
    assert found.hubs == {}
    [note] = found.notes
    assert note.startswith("its hub: ")


def test_a_feeds_hub_is_found_by_its_own_name():
    found, links = Found(), links_of("", '</Feed>; rel="self", </hub>; rel=hub')
    _note_hub(found, "https://a.example/feed", links)
    assert found.hubs == {"https://a.example/Feed": "https://a.example/hub"}
