"""Streams over WebSockets: no event stops one for good, and how a connection ended is told."""

import asyncio
import json
from types import SimpleNamespace

import pytest
from aiohttp import WSMsgType, web

from deploy.local.process import free_port
from services.poller import reading, sockets
from services.poller.formats import place_reader
from services.poller.reading import StreamReader
from services.poller.sse import MOST_BYTES
from services.poller.streams import Stream

CONNECTIONS = 3
"""After so many a test ends, whatever has come."""


class Cursors:
    def __init__(self):
        self.news = []

    async def load(self, source):
        return ""

    async def store(self, cursor, *news):
        self.news.append(news[0])
        return True


class Prices:
    async def of_slot(self):
        return 0.0


class Server:
    """A stream that goes on after a place, and says what a test lets it say."""

    def __init__(self):
        self.places = []
        self.port = free_port()
        self.held = asyncio.Event()

    async def say(self, socket, place):
        raise NotImplementedError

    async def answer(self, request):
        self.places.append(request.query.get("cursor", ""))
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await self.say(socket, self.places[-1])
        return socket


def event(place, **more):
    return json.dumps({"url": f"https://a.example/{place}", "seq": {"n": place}} | more).encode()


@pytest.fixture
async def server():
    made = Server()
    runner = web.ServerRunner(web.Server(made.answer, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", made.port).start()
    yield made
    made.held.set()
    await runner.cleanup()


@pytest.fixture
def read(server, monkeypatch):
    """A function that reads the server's stream until a page has come, or it has connected often
    enough: what came, and the news of each connection."""

    async def reading_it(wanted=None):
        pages, cursors, waits = [], Cursors(), []

        async def publish(source, pings):
            pages.extend(ping.url.rpartition("/")[2] for ping in pings)
            if wanted in pages:
                raise asyncio.CancelledError

        async def sleep(seconds):
            waits.append(seconds)
            if len(waits) == CONNECTIONS:
                raise asyncio.CancelledError

        patched = SimpleNamespace(**vars(asyncio) | {"sleep": sleep})
        monkeypatch.setattr(reading, "asyncio", patched)
        address = f"ws://127.0.0.1:{server.port}/"
        stream = Stream(address, "news", "json", "{url}", cursor="seq.n")
        one = StreamReader(stream, cursors, Prices(), publish, 0.0, "Freshet")
        async with asyncio.timeout(60):
            with pytest.raises(asyncio.CancelledError):
                await one.run()
        return pages, cursors.news

    return reading_it


@pytest.mark.parametrize("size", [MOST_BYTES, 5 * 2**20])
@pytest.mark.parametrize("is_last", [False, True])
async def test_of_an_event_that_is_too_long_the_place_counts_and_the_next_is_read(
    server, read, size, is_last
):
    events = {1: event(1), 2: event(2, text="x" * size), 3: event(3)}

    async def say(socket, place):
        for number, data in events.items():
            if number > int(place or 0):
                await socket.send_str(data.decode())
                if is_last and number == 2:
                    break
        else:
            await server.held.wait()
        await socket.close()

    server.say = say
    pages, news = await read(wanted="3")
    assert pages == ["1", "3"]
    assert server.places == ["", "2"][: 1 + is_last]
    assert [one.bad_events for one in news] == [1] * is_last


async def test_what_is_no_text_is_bad_and_the_stream_goes_on(server, read):
    async def say(socket, place):
        # Nothing checks what it is told to send.
        await socket._writer.send_frame(b'{"url": "\xff"}', WSMsgType.TEXT)
        await socket.send_bytes(event(2))
        await server.held.wait()

    server.say = say
    assert (await read(wanted="2"))[0] == ["2"]
    assert server.places == [""]


async def test_many_long_events_that_come_at_once_are_not_gathered_at_once(server, read):
    sizes = []

    async def say(socket, place):
        for number in range(8):
            await socket.send_bytes(event(number, text="x" * (MOST_BYTES // 2)))
        await server.held.wait()

    async def gather(*arguments):
        found = await gathering(*arguments)
        sizes.append(found.size)
        return found

    server.say, gathering = say, sockets.gather
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "gather", gather)
        pages, _ = await read(wanted="7")
    assert pages == [str(number) for number in range(8)]
    assert max(sizes) <= 2 * MOST_BYTES


async def endless(socket):
    await socket.send_bytes(event(1, text="x" * 2_000_000))


async def refusing(socket):
    await socket.close(code=1008, message=b"come in again")


async def cut(socket):
    socket._req.transport.abort()


async def garbled(socket):
    socket._req.transport.write(b"\xff" * 20)


async def ending(socket):
    await socket.close()


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        (endless, "an event has more than 1000000 bytes"),
        (refusing, "it ends with 1008: come in again"),
        (cut, "it is cut off"),
        (garbled, "Received frame with non-zero reserved bits"),
        (ending, "it ended"),
    ],
)
@pytest.mark.parametrize("comes_first", [False, True])
async def test_how_a_connection_ended_is_told(server, read, monkeypatch, last, reason, comes_first):
    async def say(socket, place):
        if comes_first and not place:
            await socket.send_bytes(event(1))
        await last(socket)
        if last is endless:
            await server.held.wait()

    server.say = say
    monkeypatch.setattr(reading, "MOST_PASSED_OVER", 1_000_000)
    pages, news = await read()
    assert pages == ["1"] * comes_first
    assert [one.reason for one in news][comes_first:] == [reason] * (CONNECTIONS - comes_first)


@pytest.mark.parametrize(
    ("path", "data", "place"),
    [
        ("a", b'{"a": 17, "b": [1, {"a": 2}]}', "17"),
        ("a", b'{"b": {"a": 2}, "a": "x y"}', "x y"),
        ("$a.b-c.d", b'{"$a": {"b-c": {"d": 1.5}}}', "1.5"),
        ("a", b'{"a": 1767225600005000123456789}', "1767225600005000123456789"),
        ("a", b'{"b": 1}', ""),
        ("a.b", b'{"a": [1]}', ""),
        ("a", b'{"a": {"b": 1}}', ""),
        ("a", b'{"a": null}', ""),
        ("a", b'[{"a": 1}]', ""),
        ("a", b'{"a": 1', ""),
        ("a", b"\xff", ""),
        ("a", b'{"b": ' + b"[" * 100_000, ""),
        ("", b'{"": 1}', ""),
    ],
)
def test_a_place_is_read_by_itself_as_it_is_with_all_else(path, data, place):
    assert place_reader(path)(data) == place
