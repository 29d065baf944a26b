"""WebSub against a hub made from the specification: subscribe, renew, take content, end."""

import asyncio
import time

import psycopg
import pytest
from aiohttp import web
from click.testing import CliRunner
from hub import Hub
from pydantic import SecretStr

from deploy.local.process import free_port
from services.cli.main import main

pytestmark = [pytest.mark.postgres, pytest.mark.slow(3)]

ENTRY = "<entry><link href='{}'/><updated>2026-01-0{}T00:00:00Z</updated></entry>"
PATIENCE_SECONDS = 60.0


async def until(condition):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it never comes"
        await asyncio.sleep(0.05)


class Installation:
    """A receiver, its database, a site with a hub, and the command line."""

    def __init__(self, receiver, site, hub, migrated_url) -> None:
        self.receiver = receiver
        self.site = site
        self.hub = hub
        self.database_url = migrated_url
        self.topic = f"{site.url}/feed"

    async def run(self, *arguments) -> str:
        variables = {"DATABASE_URL": self.database_url}
        command = ("subscriptions", *arguments)
        result = await asyncio.to_thread(CliRunner().invoke, main, command, env=variables)
        assert result.exit_code == 0, result.output
        return result.output

    def rows(self, columns="state, reason") -> list:
        with psycopg.connect(self.database_url) as connection:
            query = f"SELECT {columns} FROM websub_subscriptions ORDER BY topic"
            return connection.execute(query).fetchall()

    @property
    def callback(self) -> str:
        [(own_id,)] = self.rows("id")
        return f"/websub/{own_id}"


@pytest.fixture
async def installation(start, site, migrated_url):
    hub = Hub()
    site.files["/hub"] = hub.answer
    site.files["/feed"] = f'<feed><link rel="hub" href="/hub"/>{ENTRY.format("/x", 1)}</feed>'
    port = free_port()
    receiver = await start(
        receiver_port=port,
        receiver_url=f"http://127.0.0.1:{port}",
        database_url=SecretStr(migrated_url),
        signal_max_age_days=36_500.0,
    )
    return Installation(receiver, site, hub, migrated_url)


async def test_a_topic_is_subscribed_to_and_its_news_become_signals(installation):
    hub, site, topic = installation.hub, installation.site, installation.topic
    await installation.run("add", topic)
    await until(lambda: hub.granted)
    [granted] = hub.granted.values()
    assert (granted.topic, granted.lease_seconds) == (topic, 864_000)
    assert '"state": "active"' in await installation.run("list", "--json")

    fat = f"<feed>{ENTRY.format('/new', 2)}{ENTRY.format('https://b.example/', 3)}</feed>"
    assert await hub.publish(fat.encode()) == [202]
    for method in ("sha1", "sha384", "sha512"):
        assert await hub.publish(method.encode(), method) == [202]
    # What is not signed with the secret is answered the same, and left out.
    assert await hub.publish(fat.encode(), secret="guessed") == [202]
    signals = await installation.receiver.signals(6)
    assert {s.source for s in signals} == {"websub"}
    urls = sorted(s.url for s in signals)
    assert urls == sorted([*[topic] * 4, f"{site.url}/new", "https://b.example/"])
    entries = [s for s in signals if s.url != topic]
    assert {s.observed_at for s in entries} == {1767312000.0, 1767398400.0}
    assert {s.observed_at for s in signals if s.url == topic} == {None}

    # Nobody else can subscribe us, nor end what we want.
    callback = installation.callback
    for mode in ("subscribe", "unsubscribe"):
        query = {"hub.mode": mode, "hub.topic": topic + "x", "hub.challenge": "c"}
        assert (await installation.receiver.get(callback, **query))[0] == 404
    query["hub.topic"] = topic
    assert (await installation.receiver.get(callback, **query))[0] == 404

    await installation.run("remove", topic)
    await until(lambda: not hub.granted and not installation.rows())
    assert (await installation.receiver.post(callback, b"late"))[0] == 410


async def test_a_lease_is_renewed_before_it_ends(installation):
    installation.hub.lease_seconds = 3
    await installation.run("add", installation.topic)
    await until(lambda: installation.hub.granted)
    [granted] = installation.hub.granted.values()
    [(first_end, renewed_at)] = installation.rows("lease_ends, next_try_at")
    assert renewed_at < first_end
    await until(lambda: next(iter(installation.hub.granted.values())).renewals > 0)
    await until(lambda: installation.rows("lease_ends")[0][0] > first_end)
    [renewed] = installation.hub.granted.values()
    assert (renewed.callback, renewed.secret) == (granted.callback, granted.secret)
    assert installation.rows() == [("active", "")]


@pytest.mark.parametrize(("status", "asked_at_the_end"), [(307, "/hub"), (308, "/new-hub")])
async def test_a_hub_that_has_moved_is_asked_where_it_is_now(
    installation, status, asked_at_the_end
):
    hub, site = installation.hub, installation.site

    async def moved(request):
        return web.Response(status=status, headers={"Location": "/new-hub"})

    site.files |= {"/hub": moved, "/new-hub": hub.answer}
    await installation.run("add", installation.topic)
    await until(lambda: hub.granted)
    await until(lambda: installation.rows("hub") == [(f"{site.url}{asked_at_the_end}",)])
    await until(lambda: installation.rows() == [("active", "")])
    assert await hub.publish(b"news") == [202]
    site.asked.clear()
    await installation.run("remove", installation.topic)
    await until(lambda: not hub.granted and not installation.rows())
    assert site.asked[0] == asked_at_the_end


async def test_hubs_that_say_no_lease_or_write_the_topic_as_they_like_are_understood(installation):
    await installation.run("add", installation.topic)
    await until(lambda: installation.hub.granted)
    other = installation.topic.replace("http://", "HTTP://") + "#top"
    query = {"hub.mode": "subscribe", "hub.topic": other, "hub.challenge": "c"}
    # Zero is no lease that is over at once: it would be renewed every second.
    for said in ("0", "-1", "soon", "9" * 20):
        with psycopg.connect(installation.database_url) as connection:
            connection.execute("UPDATE websub_subscriptions SET lease_ends = 0")
        more = {"hub.lease_seconds": said}
        assert await installation.receiver.get(installation.callback, **query, **more) == (200, "c")
        [(lease_ends, renewed_at)] = installation.rows("lease_ends, next_try_at")
        assert 863_000 < lease_ends - time.time() < 865_000
        assert 600_000 < renewed_at - time.time() < 610_000
    for wrong in ("", "nonsense", installation.topic + "/", "https" + installation.topic[4:]):
        query["hub.topic"] = wrong
        assert (await installation.receiver.get(installation.callback, **query))[0] == 404


async def test_topics_and_hubs_that_answer_with_rubbish_wait_and_others_go_on(installation):
    site = installation.site

    async def rubbish(request):
        return web.Response(status=400, body=b"\x1f\x8b\x08\x00\x00no\x00\xff")

    site.files["/rubbish"] = rubbish
    heads = {
        "/a": '<link rel="hub" href="http://[x"/>',
        "/b": '<![nothing[<link rel="hub" href="/hub"/>',
        "/c": '<link rel="hub" href="/hub&#x0;\x00"/>',
        "/d": '<link rel="hub" href="/rubbish"/>',
    }
    for path, head in heads.items():
        site.files[path] = head
        await installation.run("add", f"{site.url}{path}")
    await until(lambda: all(reason for _, reason in installation.rows()))
    reasons = [reason for _, reason in installation.rows()]
    assert reasons[:3] == ["the topic names no hub"] * 3
    assert reasons[3] == "the hub answers 400: \ufffdno\ufffd"
    await installation.run("add", installation.topic)
    await until(lambda: installation.hub.granted)


async def test_who_has_no_hub_waits_and_whom_it_refuses_hears_why(installation):
    hub, site = installation.hub, installation.site
    hub.denies = "not for robots"

    async def page(request):
        links = f'<{site.url}/hub>; rel="hub", </self>; rel=self'
        text = '<html><head><link rel="hub" href="/nowhere"></head></html>'
        return web.Response(text=text, content_type="text/html", headers={"Link": links})

    site.files["/page"] = page
    site.files["/plain"] = '<html><body><link rel="hub" href="/hub"></body></html>'
    for path in ("/missing", "/page", "/plain"):
        await installation.run("add", f"{site.url}{path}")
    await until(lambda: all(reason for _, reason in installation.rows()))
    assert installation.rows() == [
        ("wanted", "the topic answers 404"),
        ("refused", "the hub refuses: not for robots"),
        ("wanted", "the topic names no hub"),
    ]
    # What its headers say counts before its text.
    assert [request["hub.topic"] for request in hub.requests] == [f"{site.url}/self"]


async def test_a_hub_that_goes_on_after_the_end_is_told_that_it_is_gone(installation):
    hub, topic = installation.hub, installation.topic
    await installation.run("add", topic, "--hub", f"{installation.site.url}/hub")
    await until(lambda: hub.granted)
    with psycopg.connect(installation.database_url) as connection:
        connection.execute("DELETE FROM websub_subscriptions")
    while hub.granted:
        # What the receiver knew a moment ago still counts for a moment.
        [status] = await hub.publish(b"news")
        assert status in (202, 410)
    result = await asyncio.to_thread(
        CliRunner().invoke,
        main,
        ("subscriptions", "remove", topic),
        env={"DATABASE_URL": installation.database_url},
    )
    assert result.exit_code != 0
    assert "is not subscribed to" in result.output
