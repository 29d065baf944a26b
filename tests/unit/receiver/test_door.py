"""The port that strangers talk to: slow heads, and whose address a request has."""

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from deploy.local.process import free_port
from services.receiver.door import Door
from services.receiver.visitors import Proxies, address_of, visitor_of
from shared.runtime.setting_kinds import network


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
    # One proxy of ours behind another.
    for chain in (["198.51.100.1, 10.0.0.1"], ["198.51.100.1", "10.0.0.2, 10.0.0.1"]):
        assert address_of(request("10.0.0.1", chain), {"10.0.0.1", "10.0.0.2"}) == "198.51.100.1"
    assert address_of(request("10.0.0.1", ["10.0.0.1"]), proxies) == "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "is_ours"),
    [
        ("10.1.2.3", True),
        ("11.1.2.3", False),
        ("::ffff:10.1.2.3", True),
        ("192.0.2.7", True),
        ("192.0.2.8", False),
        ("2001:db8:ffff::1", True),
        ("2001:db9::1", False),
        ("2001:DB8:0::1%eth0", True),
        ("fe80::1%eth1", True),
        ("203.0.113.7", True),
        ("", False),
        ("10.1.2", False),
        ("unknown", False),
    ],
)
def test_proxies_are_named_by_their_networks(address, is_ours):
    named = ["10.0.0.0/8", "192.0.2.7", "2001:db8::/32", "fe80::1%eth0", "::ffff:203.0.113.0/120"]
    proxies = Proxies([network(one) for one in named])
    assert (address in proxies) == is_ours
    said = address_of(request(address, ["198.51.100.1"]), proxies)
    assert said == ("198.51.100.1" if is_ours else address)


@pytest.mark.parametrize(
    ("said", "address"),
    [
        ("198.51.100.1:4711", "198.51.100.1"),
        ("[2001:db8::1]:4711", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
        ("unknown", "unknown"),
        ("", "10.0.0.1"),
    ],
)
def test_the_port_that_some_proxies_say_makes_no_other_visitor(said, address):
    assert address_of(request("10.0.0.1", [f"203.0.113.9, {said}"]), {"10.0.0.1"}) == address


def test_whoever_has_many_addresses_of_a_network_is_one_visitor():
    assert visitor_of("2001:db8::1") == visitor_of("2001:db8:0:0:ffff::2")
    assert visitor_of("2001:db8::1") != visitor_of("2001:db8:0:1::1")
    assert visitor_of("::ffff:192.0.2.1") == visitor_of("192.0.2.1")
    assert visitor_of("192.0.2.1") != visitor_of("192.0.2.2")
    assert visitor_of("fe80::1%eth0") == visitor_of("fe80::2%eth0")
    assert visitor_of("unknown") == "unknown"


async def test_a_network_of_six_has_no_more_connections_than_one_address_has():
    door = Door(web.Application(), "127.0.0.1", 1, 100, ())
    entered = [door.enter(f"2001:db8::{number}") for number in range(20)]
    assert entered == [True] * 10 + [False] * 10
    assert door.enter("2001:db8:0:1::1")
    for number in range(10):
        door.leave(f"2001:db8::{number}")
    assert door.enter("2001:db8::77")
