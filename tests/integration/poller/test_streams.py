"""Streams that are cut, killed and forgotten, read by the real worker."""

import asyncio
import contextlib
import json
import uuid

import pytest
from aiohttp import web
from pydantic import SecretStr
from stream_samples import canary, post, recent_change, wikimedia_id
from workers import reader, settings_for, worker

from deploy.local.process import free_port
from shared.contracts.codec import decode
from shared.contracts.messages import Signal
from shared.contracts.topics import SIGNALS
from shared.runtime.kafka import ensure_topics
from shared.views.answers import streams_answer

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow(3)]

EVENTS = 60
CUT_AFTER = 7
"""Events; then the connection ends, in the middle of the next one."""

KINDS = [
    recent_change,
    lambda n: recent_change(n, bot=True),
    lambda n: recent_change(n, type="categorize"),
    canary,
]


class Streams:
    """A server with a history of its own, which cuts every connection."""

    def __init__(self) -> None:
        self.port = free_port()
        self.changes = [(wikimedia_id(n), KINDS[n % 4](n)) for n in range(EVENTS)]
        self.posts = [post(n, *["app.bsky.feed.like"] * (n % 2)) for n in range(EVENTS)]
        self.forgets = False
        """Whether it has lost its history."""
        self.is_ill = False
        """Whether it answers nothing but 503."""
        self.asked: list[str | None] = []
        self.held = asyncio.Event()

    async def recentchange(self, request: web.Request) -> web.StreamResponse:
        last = request.headers.get("Last-Event-ID")
        self.asked.append(last)
        if self.is_ill:
            return web.Response(status=503)
        if last is not None and self.forgets:
            return web.Response(status=400, text="no such place")
        ids = [own_id for own_id, _ in self.changes]
        first = 0 if last is None else ids.index(last) + 1
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b":ok\n\n")
        for own_id, event in self.changes[first : first + CUT_AFTER]:
            text = f"event: message\nid: {own_id}\ndata: {json.dumps(event)}\n\n"
            await answer.write(text.encode())
        if first + CUT_AFTER >= EVENTS:
            await self.held.wait()
        await answer.write(b"event: message\nid: broken\ndata: {")
        request.transport.abort()
        return answer

    async def subscribe(self, request: web.Request) -> web.StreamResponse:
        cursor = int(request.query.get("cursor", "0"))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        left = [event for event in self.posts if event["time_us"] >= cursor]
        for event in left[:CUT_AFTER]:
            await socket.send_str(json.dumps(event))
        if len(left) <= CUT_AFTER:
            await self.held.wait()
        request.transport.abort()
        return socket


@pytest.fixture
async def streams():
    made = Streams()
    application = web.Application()
    application.router.add_get("/recentchange", made.recentchange)
    application.router.add_get("/subscribe", made.subscribe)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", made.port).start()
    yield made
    made.held.set()
    await runner.cleanup()


@pytest.fixture
async def settings(local_broker, migrated_url, streams):
    address = f"127.0.0.1:{streams.port}"
    made = settings_for(
        local_broker.bootstrap_servers,
        f"poller-{uuid.uuid4().hex[:8]}",
        database_url=SecretStr(migrated_url),
        signal_source_keys={"wiki": SecretStr("key-1")},
        poller_reconnect_seconds=0.02,
        poller_streams=(
            {
                "url": f"http://me:pw@{address}/recentchange?key=s3cret",
                "source": "wiki",
                "format": "wikimedia",
            },
            {"url": f"ws://{address}/subscribe", "source": "posts", "format": "jetstream"},
        ),
    )
    await ensure_topics(made)
    return made


def wanted() -> set[tuple[str, str]]:
    """What must come of all events: (source, page)."""
    change = "https://en.wiki.example/wiki/Page_{}"
    people = {("wiki", change.format(n)) for n in range(0, EVENTS, 4)}
    bots = {("wiki-bots", change.format(n)) for n in range(1, EVENTS, 4)}
    page = "https://bsky.app/profile/did:plc:person{}/post/post{}"
    return people | bots | {("posts", page.format(n % 3, n)) for n in range(0, EVENTS, 2)}


def found(records) -> set[tuple[str, str]]:
    return {(s.source, s.url) for s in (decode(Signal, record.value) for record in records)}


async def test_streams_that_are_cut_again_and_again_lose_nothing(settings, streams, tmp_path):
    async with reader(settings, SIGNALS) as signals:
        with worker("poller", settings, tmp_path) as process:
            # Killed in the middle, it goes on where it was.
            await signals.until(lambda got: len(got) >= 10)
            while len(streams.asked) < 3:
                await asyncio.sleep(0.01)
            process.kill()
        before = len(streams.asked)
        with worker("poller", settings, tmp_path) as process:
            records = await signals.until(lambda got: found(got) >= wanted())
            assert process.stop() == 0
    assert found(records) == wanted()
    assert streams.asked[0] is None
    assert None not in streams.asked[before:]
    by_people = {dict(r.headers).get("source-key") for r in records if b'"wiki"' in r.value}
    assert by_people == {b"key-1"}


async def test_a_server_that_has_forgotten_our_place_is_read_from_now_and_counted(
    settings, streams, tmp_path
):
    async with reader(settings, SIGNALS) as signals:
        with worker("poller", settings, tmp_path) as process:
            await signals.until(lambda got: ("wiki", wiki(0)) in found(got))
            streams.forgets = True
            while True:
                with contextlib.suppress(OSError):
                    _, text = await process.get("/metrics")
                    if b'freshet_poller_gaps_total{stream="wiki"}' in text:
                        break
                await asyncio.sleep(0.05)
            assert process.stop() == 0
    assert "has forgotten our place" in process.log


def wiki(number: int) -> str:
    return f"https://en.wiki.example/wiki/Page_{number}"


async def told(settings, enough):
    """What is told of each source, once it is enough."""
    while True:
        found = {row["source"]: row for row in await asyncio.to_thread(streams_answer, settings)}
        if enough(found):
            return found
        await asyncio.sleep(0.05)


async def test_what_a_stream_costs_and_brings_is_told_whatever_is_cut_or_killed(
    settings, streams, tmp_path
):
    streams.is_ill = True
    with worker("poller", settings, tmp_path) as process:
        ill = await told(settings, lambda found: found.get("wiki", {}).get("failures", 0) >= 2)
        streams.is_ill = False
        await told(settings, lambda found: found["wiki"]["entries"] >= 2 * CUT_AFTER)
        process.kill()
    with worker("poller", settings, tmp_path) as process:
        while len(streams.asked) * CUT_AFTER < EVENTS:
            await asyncio.sleep(0.01)
        # Where a stream stands is written when it is cut, if not before.
        streams.held.set()
        well = await told(settings, lambda found: found["wiki"]["entries"] >= EVENTS)
        _, metrics = await process.get("/metrics")
        assert process.stop() == 0
    assert ill["wiki"]["reason"] == "it answers 503"
    assert ill["wiki"]["url"] == f"http://127.0.0.1:{streams.port}/recentchange"
    assert "s3cret" not in process.log
    wiki, bots = well["wiki"], well["wiki-bots"]
    # Each once, though what was not written down was read again.
    assert [wiki["entries"], wiki["signals"], bots["signals"]] == [EVENTS, EVENTS // 4, EVENTS // 4]
    assert wiki["polls"] > EVENTS // CUT_AFTER
    assert (bots["polls"], bots["entries"]) == (0, 0)
    assert wiki["kind"] == well["posts"]["kind"] == "stream"
    assert wiki["delay_seconds"] > 0.0
    for name in ("connections", "stream_bytes"):
        assert f'freshet_poller_{name}_total{{stream="wiki"}}'.encode() in metrics
