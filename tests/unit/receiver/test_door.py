"""The port that strangers talk to: slow heads, and whose address a request has."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from deploy.local.process import free_port
from services.receiver.door import Door
from services.receiver.visitors import address_of


@pytest.fixture
async def port():
    async def answer(request):
        return web.Response(text="here")

    application = web.Application()
    application.router.add_get("/", answer)
    number = free_port()
    door = Door(application, "127.0.0.1", number, 100, (), idle_seconds=0.2)
    await door.open()
    yield number
    await door.close()


@pytest.mark.parametrize(
    "begin",
    [b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /"],
)
async def test_who_does_not_come_to_the_point_is_closed_on(port, begin):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(begin)
    said = await asyncio.wait_for(reader.read(), 60)
    assert said.endswith(b"here") == (b"\r\n\r\n" in begin)
    writer.close()


def request(remote, forwarded=()):
    headers = [("X-Forwarded-For", value) for value in forwarded]
    return make_mocked_request("GET", "/", headers=headers).clone(remote=remote)


def test_only_proxies_of_ours_are_believed():
    proxies = {"10.0.0.1"}
    assert address_of(request("192.0.2.1", ["198.51.100.1"]), proxies) == "192.0.2.1"
    assert address_of(request("10.0.0.1", ["198.51.100.1"]), proxies) == "198.51.100.1"
    # What stands before was written by the visitor.
    several = ["203.0.113.9, 198.51.100.1", "198.51.100.2"]
    assert address_of(request("10.0.0.1", several), proxies) == "198.51.100.2"
    assert address_of(request("10.0.0.1"), proxies) == "10.0.0.1"
