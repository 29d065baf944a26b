"""Bodies that are large, packed, broken off or slow; and what all of them take together."""

import asyncio
import gzip
import zlib

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from services.receiver.bodies import Bodies
from services.receiver.refusing import Refused

LIMIT = 100_000


@pytest.fixture
async def post():
    """A function that posts to a server of these bodies, as an address: status and text."""

    async def read(request):
        try:
            body = await bodies.read(request, request.headers.get("X-As", "a"))
        except Refused as refused:
            return web.Response(status=refused.status, text=str(refused), headers=refused.headers)
        return web.Response(text=str(len(body)))

    bodies = Bodies(LIMIT, seconds=0.2, together_bytes=4 * LIMIT)
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
    post.bodies.take("a", LIMIT)


async def test_one_address_leaves_room_for_others(post):
    post.bodies.take("greedy", LIMIT)
    assert (await post(b"x", **{"X-As": "greedy"}))[0] == 503
    assert (await post(b"x", **{"X-As": "modest"}))[0] == 200
    for n in range(3):
        post.bodies.take(f"greedy-{n}", LIMIT)
    status, text = await post(b"x", **{"X-As": "modest"})
    assert status == 503, text
