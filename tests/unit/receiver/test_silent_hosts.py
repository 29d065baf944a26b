"""Hosts that never answer, whoever names them, keep nobody else's keys from being found."""

import asyncio
import contextlib
import socket

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from aiohttp.test_utils import TestServer

from services.receiver.indexnow.keys import CHECKS_OF_VISITOR, KeyBook, Verdict, key_fetcher
from services.receiver.indexnow.submission import KeyFile
from services.receiver.refusing import Refused

KEY = "0123456789abcdef"
PATIENCE_SECONDS = 20.0


class Loopback(AbstractResolver):
    """Every name is this machine's."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        known = {"hostname": host, "host": "127.0.0.1", "port": port}
        return [known | {"family": socket.AF_INET, "proto": 0, "flags": socket.AI_NUMERICHOST}]

    async def close(self):
        pass


class Web:
    """Hosts, of which some never answer, nor does any at some paths; and a clock."""

    def __init__(self):
        self.now = 0.0
        self.held = asyncio.Event()
        self.silent = 0
        """Requests that wait for an answer."""
        self.port = 0

    async def answer(self, request):
        if request.host.startswith("silent") or request.path.startswith("/silent/"):
            self.silent += 1
            await self.held.wait()
        return web.Response(text=KEY)

    async def are_asked(self, count):
        """Wait until so many requests wait for an answer: what is taken is asked for at once."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.silent < count:
                await asyncio.sleep(0.01)

    def file(self, name, path=KEY):
        host = f"{name}.example:{self.port}"
        return KeyFile(host, KEY, (f"http://{host}/{path}.txt",), "/")


@pytest.fixture
async def hosts():
    made = Web()
    application = web.Application()
    application.router.add_get("/{any:.*}", made.answer)
    async with TestServer(application) as server:
        made.port = server.port
        yield made
        made.held.set()


@pytest.fixture
async def books(hosts):
    """A function that makes a book of keys, by how long it waits for one."""
    # No silent host is given up before a test is over.
    fetcher = key_fetcher(allow_private=True, seconds=10 * PATIENCE_SECONDS, resolver=Loopback())
    await fetcher.start()
    book = KeyBook(fetcher, 86_400.0, 0.0, lambda: hosts.now)

    def waiting(seconds):
        book._wait_seconds = seconds
        return book

    yield waiting
    await book.stop()
    await fetcher.stop()


@pytest.mark.parametrize("visitors", [1, 4, 16, 30])
@pytest.mark.parametrize("turns", ["each has one first", "each has all at once"])
async def test_a_few_visitors_whose_hosts_are_silent_leave_room_for_the_next(
    hosts, books, visitors, turns
):
    asked = [(visitor, n) for n in range(CHECKS_OF_VISITOR) for visitor in range(visitors)]
    book, taken = books(0.0), 0
    for visitor, number in sorted(asked) if turns == "each has all at once" else asked:
        with contextlib.suppress(Refused):
            file = hosts.file(f"silent-{visitor}-{number}")
            assert await book.verdict(file, f"192.0.2.{visitor}") is Verdict.PENDING
            taken += 1
    assert taken >= min(visitors, 2) * CHECKS_OF_VISITOR
    await hosts.are_asked(taken)
    verdict = await books(PATIENCE_SECONDS).verdict(hosts.file("good"), "198.51.100.1")
    assert verdict is Verdict.VALID


async def test_who_names_silent_files_of_a_host_keeps_its_own_key_from_nothing(hosts, books):
    book, taken = books(0.0), 0
    for number in range(12):
        with contextlib.suppress(Refused):
            await book.verdict(hosts.file("good", f"silent/{number}"), "192.0.2.1")
            taken += 1
        hosts.now += 2.0
    assert taken > 8
    await hosts.are_asked(taken)
    verdict = await books(PATIENCE_SECONDS).verdict(hosts.file("good"), "198.51.100.1")
    assert verdict is Verdict.VALID
