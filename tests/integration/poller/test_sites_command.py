"""`freshet sites add`, `list` and `remove`, against a site that has everything."""

import asyncio
import json
import time

import numpy as np
import psycopg
import pytest
from click.testing import CliRunner
from sites import atom, index, sitemap

from services.cli.main import main
from services.poller.sites.news import News
from services.poller.sites.rules import SiteRules
from shared.contracts.identity import host_id_of, identify, shard_of
from shared.discovery.robots import read_robots
from shared.discovery.updates import BEHIND_SECONDS
from shared.store.hosts import HostLearning, pack_hosts, pack_sources

pytestmark = pytest.mark.postgres

SHARDS = 4
HOME = """<html><head><link rel="alternate" type="application/atom+xml" href="/feed">
<link rel="alternate" hreflang="de" href="/de/"><link rel="hub" href="https://hub.example/home">
</head><body><link rel="alternate" type="application/rss+xml" href="/visitor"></body></html>"""


@pytest.fixture
def site(site):
    """It has a first page, and a feed with a hub."""
    site.put("/", HOME.encode())
    feed = atom([(site.page(1), "")]).replace(
        b"<entry>", b'<link rel="hub" href="https://hub.example/"/><entry>', 1
    )
    site.put("/feed", feed)
    return site


@pytest.fixture
def run(migrated_url):
    """A function that runs a command and returns what it answers."""
    variables = {
        "DATABASE_URL": migrated_url,
        "FRESHET_PARTITIONS": str(SHARDS),
        "FRESHET_ALLOW_PRIVATE_HOSTS": "true",
        "FRESHET_RECEIVER_URL": "https://pings.example",
    }

    async def running(*arguments, code=0, **more):
        command = ("sites", *arguments)
        environment = variables | more
        result = await asyncio.to_thread(CliRunner().invoke, main, command, env=environment)
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.output

    return running


async def test_a_site_is_looked_at_and_all_that_it_has_is_watched(run, site, migrated_url):
    site.put("/robots.txt", f"Sitemap: {site.url}/a.xml\nSitemap: ftp://x/\n".encode())
    answer = await run("add", site.url, "--source", f"{site.url}/b.xml", "--json")
    assert answer["added"]
    assert answer["hosts"] == [site.host]
    assert answer["sources"] == [f"{site.url}{path}" for path in ("/a.xml", "/b.xml", "/feed")]
    assert answer["hubs"] == {
        f"{site.url}/": "https://hub.example/home",
        f"{site.url}/feed": "https://hub.example/",
    }
    assert answer["subscribed"] == [f"{site.url}/", f"{site.url}/feed"]
    [note] = answer["notes"]
    assert "ftp://x/" in note
    rows = await run("list", "--json")
    assert {row["url"]: row["found_by"] for row in rows} == {
        f"{site.url}/a.xml": "robots",
        f"{site.url}/b.xml": "operator",
        f"{site.url}/feed": "link",
        f"{site.url}/robots.txt": "robots",
    }
    # Once more changes nothing but the rules.
    answer = await run("add", site.url, "--exclude", "*/private/*", "--host", "b.example", "--json")
    assert not answer["added"]
    assert answer["hosts"] == [site.host, "b.example"]
    with psycopg.connect(migrated_url) as connection:
        [rules] = connection.execute("SELECT hosts, include, exclude FROM watched_sites")
    assert rules == ([site.host, "b.example"], [], ["*/private/*"])

    removed = await run("remove", site.url, "--json")
    assert len(removed["sources"]) == 4
    assert removed["unsubscribed"] == [f"{site.url}/", f"{site.url}/feed"]
    assert await run("list") == "no site is watched\n"
    assert "is not watched" in await run("remove", site.url, code=2)


async def test_a_sitemap_that_nothing_names_is_looked_for(run, site):
    site.put("/sitemap.xml", sitemap([(site.page(1), "")]))
    answer = await run("add", site.url, "--json", FRESHET_RECEIVER_URL="")
    assert answer["sources"] == [f"{site.url}/feed", f"{site.url}/sitemap.xml"]
    assert answer["subscribed"] == []
    # An answer in words for people is none.
    site.put("/sitemap.xml", b"<!doctype html><html>not found</html>")
    site.put("/sitemap_index.xml", index([]))
    await run("remove", site.url)
    answer = await run("add", site.url, "--json")
    assert answer["sources"] == [f"{site.url}/feed", f"{site.url}/sitemap_index.xml"]


async def test_the_list_has_what_was_learned_of_each_source(run, site, migrated_url):
    site.put("/robots.txt", f"Sitemap: {site.url}/a.xml".encode())
    await run("add", site.url)
    learned = HostLearning.initial(1)
    learned.precision[0, :2], learned.signals[0, :2] = (0.9, 0.02), (100.0, 1000.0)
    named = pack_sources([f"site:{site.host}/a.xml", f"site:{site.host}/feed"])
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO hosts (shard, host_id, host, blocked_until, limit_updated_at, sources, "
            "learning) VALUES (%s, %s, %s, '-infinity', '-infinity', %s, %s)",
            (
                shard_of(site.host, SHARDS),
                host_id_of(site.host),
                site.host,
                named,
                pack_hosts(learned).arena.tobytes(),
            ),
        )
    rows = {row["url"].rpartition("/")[2]: row for row in await run("list", "--json")}
    assert rows["a.xml"]["precision"] == pytest.approx(0.9)
    assert rows["feed"]["precision"] == pytest.approx(0.02)
    # 90 and 20 changes that were announced, and no page that changes by itself.
    assert rows["a.xml"]["recall"] == pytest.approx(90 / 110)
    assert rows["robots.txt"]["precision"] is None
    assert np.isclose(rows["feed"]["recall"], 20 / 110)


async def test_a_private_site_is_refused_unless_it_is_let(run, site):
    answer = await run("add", site.url, code=2, FRESHET_ALLOW_PRIVATE_HOSTS="false")
    assert "not on the public internet" in answer
    assert "no-url" in await run("add", "no-url", code=2)


async def test_a_host_that_was_just_erased_is_not_watched_in_vain(run, site, migrated_url):
    """What is found is dated back, so estimators would leave it out, and the poller knows it."""
    place = shard_of(site.host, SHARDS), host_id_of(site.host)
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        at = time.time() - BEHIND_SECONDS
        connection.execute("INSERT INTO erased_hosts VALUES (%s, %s, %s)", (*place, at + 150.0))
        answer = await run("add", site.url, code=2)
        assert f"{site.host} was erased a moment ago" in answer
        assert await run("list") == "no site is watched\n"
        connection.execute("UPDATE erased_hosts SET erased_at = %s", (at - 1.0,))
    assert (await run("add", site.url, "--json"))["added"]


async def test_a_site_that_is_away_is_watched_all_the_same(run, site):
    site.away = True
    answer = await run("add", site.url, "--json")
    assert answer["sources"] == []
    assert len(answer["notes"]) == 2
    assert len(await run("list", "--json")) == 1


async def test_a_host_counts_by_the_name_that_its_pages_have(run, site, migrated_url):
    written = ["WWW.Example.com", "www.example.com:443", "bücher.example:80", "b.example:8080"]
    options = [part for name in written for part in ("--host", name)]
    answer = await run("add", site.url, *options, "--json")
    named = ["www.example.com", "xn--bcher-kva.example", "b.example:8080"]
    assert answer["hosts"] == [site.host, *named]
    with psycopg.connect(migrated_url) as connection:
        [[hosts]] = connection.execute("SELECT hosts FROM watched_sites")
    # What the poller counts.
    rules = SiteRules(hosts, (), ())
    for url in ("https://www.example.com:443/a", "http://bücher.example/", "http://b.example:8080"):
        news = News(url, is_new=True, observed_at=None, signals=False, is_exact=False)
        robots = dict.fromkeys(rules.origins_of([news]), read_robots(b"", "a"))
        assert rules.page_of(news, robots) == identify(url)
    for wrong in ("https://www.example.com/", "www.example.com/blog", "a b"):
        assert "is not a host" in await run("add", site.url, "--host", wrong, code=2)
