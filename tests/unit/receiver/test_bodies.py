"""Bodies that are large, packed, broken off or slow; and what all of them take together."""

import asyncio
import gzip
import time
import zlib
from collections import Counter

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from deploy.local.process import free_port
from services.receiver.bodies import RETRY_SECONDS, SHORT_BYTES, Bodies, Body
from services.receiver.door import Door
from services.receiver.pages import answered
from services.receiver.refusing import Refused

LIMIT = 100_000


@pytest.fixture
async def post():
    """A function that posts to a server of these bodies, as an address: status and text."""

    async def read(request):
        try:
            async with bodies.read(request, request.headers.get("X-As", "a")) as body:
                return web.Response(text=str(len(body.text)))
        except Refused as refused:
            return web.Response(status=refused.status, text=str(refused), headers=refused.headers)

    bodies = Bodies(LIMIT, seconds=0.2, together_bytes=8 * LIMIT)
    application = web.Application()
    application.router.add_post("/", read)
    server = TestServer(application, port=0)
    await server.start_server(auto_decompress=False)
    async with TestClient(server) as client:

        async def posting(body, **headers):
            async with client.post("/", data=body, headers=headers) as answer:
                return answer.status, await answer.text()

        posting.bodies = bodies
        yield posting


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_packed_bodies_are_read(post, pack):
    encoding = {"Content-Encoding": "gzip" if pack is gzip.compress else "deflate"}
    assert await post(pack(b"x" * LIMIT), **encoding) == (200, str(LIMIT))


async def test_what_is_larger_is_refused_however_it_is_packed(post):
    assert (await post(b"x" * (LIMIT + 1)))[0] == 413
    for size in (LIMIT + 1, 100_000_000):
        status, text = await post(gzip.compress(b"\0" * size), **{"Content-Encoding": "gzip"})
        assert status == 413, text


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip"])
async def test_packed_bodies_may_be_joined(post, encoding):
    parts = b"".join(gzip.compress(bytes([n]) * 1000) for n in range(100))
    assert await post(parts, **{"Content-Encoding": encoding}) == (200, str(LIMIT))
    # What follows and is not packed never counted.
    assert await post(parts + b"\0\n", **{"Content-Encoding": encoding}) == (200, str(LIMIT))
    for more, status in ((gzip.compress(b"x"), 413), (gzip.compress(b"")[:-1], 400)):
        assert (await post(parts + more, **{"Content-Encoding": encoding}))[0] == status
    assert (await post(gzip.compress(b"") * 2000, **{"Content-Encoding": encoding}))[0] == 400


async def test_damaged_and_unknown_packing_is_refused(post):
    packed = gzip.compress(b"x" * 1000)
    assert (await post(packed[:-9], **{"Content-Encoding": "gzip"}))[0] == 400
    assert (await post(b"no gzip", **{"Content-Encoding": "gzip"}))[0] == 400
    assert (await post(b"x", **{"Content-Encoding": "br"}))[0] == 415


async def test_a_sender_that_stands_still_is_given_up_and_holds_nothing(post):
    gone = asyncio.Event()

    async def slow():
        yield b"x"
        await gone.wait()

    status, _ = await post(slow())
    gone.set()
    assert status == 408
    # All of what it held is free again.
    post.bodies.take("a", 2 * LIMIT)


async def test_one_address_leaves_room_for_others(post):
    post.bodies.take("greedy", 2 * LIMIT)
    assert (await post(b"x", **{"X-As": "greedy"}))[0] == 503
    assert (await post(b"x", **{"X-As": "modest"}))[0] == 200
    for n in range(3):
        post.bodies.take(f"greedy-{n}", 2 * LIMIT)
    status, text = await post(b"x", **{"X-As": "modest"})
    assert status == 503, text


async def test_what_is_packed_small_takes_the_room_that_it_has_unpacked(post):
    post.bodies.take("a", LIMIT + LIMIT // 2)
    small = gzip.compress(b"x" * (LIMIT // 4))
    assert (await post(small, **{"Content-Encoding": "gzip"}))[0] == 200
    large = gzip.compress(b"x" * LIMIT)
    assert (await post(large, **{"Content-Encoding": "gzip"}))[0] == 503
    # Whoever was refused holds nothing any more.
    post.bodies.take("a", LIMIT // 2)


@pytest.mark.parametrize("size", [SHORT_BYTES - 1, LIMIT])
async def test_of_a_body_that_something_was_made_of_nothing_else_is_left(size):
    bodies = Bodies(LIMIT, together_bytes=8 * LIMIT)
    body = Body(bodies, "a")
    body.text = b"x" * size
    body.grow(size)
    assert await body.turned_into(len, lambda made: 10) == size
    assert (body.text, bodies.held_bytes) == (b"", 10)


async def test_long_bodies_are_worked_on_one_at_a_time():
    bodies, at_once = Bodies(LIMIT), Counter()

    def work(text):
        at_once["now"] += 1
        at_once["most"] = max(at_once["most"], at_once["now"])
        time.sleep(0.01)
        at_once["now"] -= 1

    async def one():
        body = Body(bodies, "a")
        body.text = b"x" * LIMIT
        await body.turned_into(work, lambda made: 0)

    await asyncio.gather(*(one() for _ in range(8)))
    assert at_once["most"] == 1


def test_what_was_made_of_a_body_takes_its_room_and_the_only_one_is_let_through():
    bodies = Bodies(LIMIT, together_bytes=8 * LIMIT)
    only = Body(bodies, "a")
    only.grow(LIMIT)
    only.becomes(5 * LIMIT)
    with pytest.raises(Refused):
        bodies.take("a", 1)
    bodies.take("b", 2 * LIMIT)
    other = Body(bodies, "c")
    other.grow(LIMIT)
    # Of its address the only one; but there is no room for it beside the others.
    with pytest.raises(Refused) as refused:
        other.becomes(LIMIT + 1)
    assert (refused.value.status, refused.value.retry_seconds) == (503, RETRY_SECONDS)
    only.drop()
    bodies.take("a", 2 * LIMIT)


@pytest.mark.parametrize(
    "head", [b"Content-Length: 1000\r\n\r\nbegun", b"Transfer-Encoding: chunked\r\n\r\n5\r\nbeg"]
)
async def test_who_goes_away_amid_a_body_leaves_nothing_and_is_no_fault_of_ours(head):
    bodies, statuses = Bodies(LIMIT), []

    async def read(request):
        async with bodies.read(request, "a"):
            raise AssertionError("it has come as a whole")

    @web.middleware
    async def noted(request, handler):
        answer = await answered(request, handler)
        statuses.append(answer.status)
        return answer

    application = web.Application(middlewares=[noted])
    application.router.add_post("/", read)
    door = Door(application, "127.0.0.1", port := free_port(), 100, ())
    await door.open()
    with capture_logs() as said:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nHost: x\r\n" + head)
        async with asyncio.timeout(30):
            while not bodies.held_bytes:
                await asyncio.sleep(0.001)
            writer.close()
            while not statuses:
                await asyncio.sleep(0.001)
    await door.close()
    assert (statuses, said, bodies.held_bytes) == ([400], [], 0)
