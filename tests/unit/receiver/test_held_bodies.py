"""What is kept of bodies while their senders wait: strangers cannot fill the memory."""

import asyncio
import contextlib
import gc
import gzip
import json
import tracemalloc
from collections import Counter
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web

from deploy.local.process import free_port
from services.receiver.bodies import Bodies
from services.receiver.door import Door
from services.receiver.indexnow.keys import KeyBook
from services.receiver.indexnow.submission import of_body
from services.receiver.lines import read_lines
from services.receiver.pages import Pages, Parts, answered
from services.receiver.rates import Rates
from services.receiver.refusing import Refused
from services.receiver.sending import bytes_of
from services.receiver.tokens import Tokens
from services.receiver.visitors import Proxies
from shared.runtime.fetching import FetchFailed
from shared.runtime.pings import Ping
from shared.runtime.settings import Settings
from shared.runtime.signal_bounds import SignalBounds

MOST = 256 * 1024
TOGETHER = 8 * MOST
AT_ONCE = 45


class Receiver:
    """The real door and pages; key files that are held back, and a broker that takes all."""

    def __init__(self) -> None:
        self.found = asyncio.Event()
        self.asked: Counter[str] = Counter()
        self.sent: list[int] = []
        self.bodies = Bodies(MOST, together_bytes=TOGETHER)
        self.url = f"http://127.0.0.1:{free_port()}"
        proxies = Proxies(["127.0.0.0/8"])
        keys = KeyBook(self, 3600.0, 60.0)
        engines = SimpleNamespace(known=lambda *_: False)
        parts = Parts(
            *(Settings(), self, self.bodies, keys, engines, Rates(1e9), Tokens({}), proxies)
        )
        application = web.Application(middlewares=[answered])
        application.add_routes(Pages(parts).routes())
        port = int(self.url.rpartition(":")[2])
        self.door = Door(application, "127.0.0.1", port, 10 * AT_ONCE, proxies)

    async def get(self, url, **_):
        """As the fetcher of key files."""
        self.asked[url] += 1
        await self.found.wait()
        raise FetchFailed("nobody there")

    async def send(self, source, pings):
        self.sent.append(len(pings))

    async def post(self, client, body, visitor, **headers) -> int:
        headers |= {"X-Forwarded-For": visitor}
        async with client.post(f"{self.url}/indexnow", data=body, headers=headers) as answer:
            return answer.status


@pytest.fixture
async def receiver():
    made = Receiver()
    await made.door.open()
    yield made
    made.found.set()
    await made.door.close()


def submission(number, count, length):
    host = f"{number}.example"
    urls = [f"https://{host}/{n:06}".ljust(length, "a") for n in range(count)]
    return json.dumps({"host": host, "key": "0123456789abcdef", "urlList": urls}).encode()


@contextlib.asynccontextmanager
async def posting(receiver, bodies, visitor_of=lambda n: f"192.0.2.{n}"):
    """Posts all of them packed; the tasks, once each is answered or waits for its key."""
    packed = [gzip.compress(body) for body in bodies]
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        tasks = [
            asyncio.ensure_future(
                receiver.post(client, body, visitor_of(n), **{"Content-Encoding": "gzip"})
            )
            for n, body in enumerate(packed)
        ]
        while sum(task.done() for task in tasks) + receiver.asked.total() < len(tasks):
            await asyncio.sleep(0.01)
        yield tasks
        receiver.found.set()
        await asyncio.gather(*tasks)


@pytest.mark.slow(0.5)
@pytest.mark.parametrize(("count", "length"), [(320, 760), (600, 25)])
async def test_what_waits_for_its_key_takes_no_more_than_all_bodies_may(receiver, count, length):
    bodies = [submission(n, count, length) for n in range(AT_ONCE)]
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    async with posting(receiver, bodies) as tasks:
        kept = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        waiting = receiver.asked.total()
        assert waiting >= 2
        assert {task.result() for task in tasks if task.done()} == {503}
        # Besides bodies there are 45 connections.
        assert kept < TOGETHER + AT_ONCE * 40_000
        assert receiver.bodies.held_bytes <= TOGETHER
    assert Counter(task.result() for task in tasks) == {403: waiting, 503: AT_ONCE - waiting}
    assert receiver.bodies.held_bytes == 0


async def test_one_visitor_has_its_part_and_another_is_served(receiver):
    bodies = [submission(n, 100, 760) for n in range(10)]
    async with posting(receiver, bodies, lambda _: "192.0.2.1") as tasks:
        assert sum(task.done() for task in tasks) > 0
        assert receiver.bodies.held_bytes <= TOGETHER / 4
        async with posting(receiver, [submission(99, 320, 760)], lambda _: "192.0.2.9") as [other]:
            assert not other.done()
    assert other.result() == 403


LINES = b"xx\n" * 300_000
BOUNDS = SignalBounds(300.0, 9e9, allow_private_hosts=False)
URLS = b'{"host": "a.example", "key": "0123456789abcdef", "urlList": [%s"x"]}' % (b'"x",' * 200_000)


def lines_of(body):
    return read_lines(body, BOUNDS, 1.7e9)


@pytest.mark.parametrize(
    ("read", "body"), [(of_body, URLS), (lines_of, LINES)], ids=["urls", "lines"]
)
def test_texts_without_end_are_refused_before_they_are_taken_apart(read, body):
    tracemalloc.start()
    with pytest.raises(Refused):
        read(body)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 100_000


@pytest.mark.parametrize("length", [20, 200, 2000])
def test_pings_take_about_what_they_are_counted_for(length):
    def made(n):
        url = f"https://a.example/{n}".ljust(length, "a")
        message = (b"a.example"[:], json.dumps({"url": url, "source": "indexnow"}).encode())
        return Ping(url, "".join(["a.exam", "ple"]), 1.5 * n), message

    gc.collect()  # empties the free lists: what is taken from those is not traced
    tracemalloc.start()
    both = [made(n) for n in range(1000)]
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert 0.7 * taken < bytes_of([ping for ping, _ in both]) < 1.5 * taken
