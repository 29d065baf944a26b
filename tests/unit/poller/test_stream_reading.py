"""A reader of streams connects again as it should, and nobody leads it where it must not go."""

import asyncio
import json
import socket
from types import SimpleNamespace

import pytest
from aiohttp import web

from deploy.local.process import free_port
from services.poller import reading
from services.poller.reading import MOST_CURSOR, StreamReader
from services.poller.streams import Stream
from services.poller.walls import Walls
from shared.runtime.fetching import PrivateAddress

STREAM = Stream("https://s.example/events", "news", "json", page="{url}", time="at", cursor="place")


class Cursors:
    async def load(self, source):
        return ""

    async def store(self, cursor, *news):
        return True


class Refusing(Cursors):
    """A database that is away when it is written first."""

    def __init__(self):
        self.written = []

    async def store(self, cursor, own, *others):
        self.written.append((cursor, own.connections, own.events))
        return len(self.written) > 1


class Prices:
    async def of_slot(self):
        return 0.0


def event(**fields):
    return json.dumps({"url": "https://a.example/1", **fields}).encode()


async def nothing_more(source, pings):
    pass


async def read(monkeypatch, connections, publish=nothing_more, cursors=None):
    """What a reader waits for after each connection, and where it stands before each, where the
    server says so much, (event, its id) each, and ends."""
    waits, places = [], []

    async def events(self, client):
        places.append(self._cursor)
        for one in connections[len(places) - 1]:
            yield [one]

    async def sleep(seconds):
        waits.append(seconds)
        if len(waits) == len(connections):
            raise asyncio.CancelledError

    monkeypatch.setattr(StreamReader, "_events", events)
    monkeypatch.setattr(reading.asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await StreamReader(STREAM, cursors or Cursors(), Prices(), publish, 1.0, "Freshet").run()
    return waits, places


async def test_a_stream_without_places_that_brings_events_is_soon_connected_to_again(monkeypatch):
    brings, nothing = [(event(), None)], []
    waits, _ = await read(monkeypatch, [nothing, nothing, nothing, brings, brings, nothing])
    assert waits == [1, 2, 4, 1, 1, 2]


@pytest.mark.parametrize("bad", ["a\r\nCookie: b", "a\0b", "x" * (MOST_CURSOR + 1)])
async def test_no_place_that_cannot_be_said_again_cuts_a_stream_off_for_good(monkeypatch, bad):
    said = [(event(place="7"), None), (event(place=bad), None)]
    _, places = await read(monkeypatch, [said, [(event(), bad)], []])
    assert places == ["", "7", "7"]


async def test_a_stream_goes_on_behind_what_the_broker_has_and_not_behind_what_was_read(
    monkeypatch,
):
    said, came = [(event(place="7"), None)], []

    async def publish(source, pings):
        came.append(len(pings))
        if len(came) == 1:
            raise ConnectionError("the broker is away")

    _, places = await read(monkeypatch, [said, said, []], publish)
    assert places == ["", "", "7"]
    assert came == [1, 1]


async def test_what_the_database_did_not_write_down_is_written_with_what_comes_next(monkeypatch):
    cursors = Refusing()
    said = [(event(place="7"), None)]
    await read(monkeypatch, [said, [(event(place="8"), None)], []], cursors=cursors)
    # The third has the third connection alone.
    assert cursors.written == [("7", 1, 1), ("8", 2, 2), ("8", 1, 0)]


@pytest.mark.parametrize("scheme", ["http", "ws"])
@pytest.mark.parametrize("status", [404, 410])
async def test_a_place_is_given_up_where_the_stream_is_there_without_it(
    monkeypatch, status, scheme
):
    # A server that is rolled out says of everything that it is not there.
    state, asked = "away", []

    async def answer(request):
        place = request.headers.get("Last-Event-ID") or request.query.get("cursor", "")
        asked.append((state, place))
        if state == "away" or (state == "forgetful" and place):
            return web.Response(status=status)
        if scheme == "ws":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_bytes(event(place="8"))
            await socket.close()
            return socket
        body = b"id: 8\ndata: " + event() + b"\n\n"
        return web.Response(body=body, content_type="text/event-stream")

    async def publish(source, pings):
        pass

    async def sleep(seconds):
        nonlocal state
        state = {"away": "well", "well": "forgetful", "forgetful": "end"}[state]
        if state == "end":
            raise asyncio.CancelledError

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port := free_port()).start()
    monkeypatch.setattr(Cursors, "load", lambda *_: asyncio.sleep(0, "7"))
    stream = Stream(f"{scheme}://127.0.0.1:{port}/", "news", "json", "{url}", "at", "place")
    made = StreamReader(stream, Cursors(), Prices(), publish, 1.0, "Freshet")
    monkeypatch.setattr(reading, "asyncio", SimpleNamespace(**vars(asyncio) | {"sleep": sleep}))
    with pytest.raises(asyncio.CancelledError):
        await made.run()
    await runner.cleanup()
    assert asked == [
        ("away", "7"),
        ("away", ""),
        ("well", "7"),
        ("forgetful", "8"),
        ("forgetful", ""),
    ]


async def test_a_public_server_does_not_redirect_a_reader_behind_our_walls():
    def connect(walls, address, family=socket.AF_INET):
        walls.socket((family, socket.SOCK_STREAM, 0, "", (address, 80))).close()

    outside, inside = Walls(), Walls()
    connect(outside, "93.184.216.34")
    connect(inside, "10.0.0.7")
    for walls in (outside, inside):
        [redirected] = walls.trace().on_request_redirect
        await redirected(None, None, None)
    connect(outside, "93.184.216.35")
    for address, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
        with pytest.raises(PrivateAddress):
            connect(outside, address, family)
    # A machine of ours that names another one is the operator's.
    connect(inside, "10.0.0.8")
