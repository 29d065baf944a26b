"""A receiver as a process of its own, and a small web on loopback that it asks."""

import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
from aiohttp import web
from workers import WorkerProcess, reader, settings_for, worker

from deploy.local.process import free_port
from shared.contracts.codec import decode
from shared.contracts.messages import Signal
from shared.contracts.topics import SIGNALS
from shared.runtime.settings import Settings

Serve = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Site:
    """A site whose files a test sets, and which remembers what was asked of it."""

    def __init__(self) -> None:
        self.files: dict[str, str | Serve] = {}
        self.asked: list[str] = []
        self.port = free_port()
        self.host = f"127.0.0.1:{self.port}"
        self.url = f"http://{self.host}"

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path_qs)
        found = self.files.get(request.path)
        if found is None:
            return web.Response(status=404)
        return web.Response(text=found) if isinstance(found, str) else await found(request)


@contextlib.asynccontextmanager
async def serving(site: Site) -> AsyncIterator[Site]:
    runner = web.ServerRunner(web.Server(site.answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", site.port).start()
    try:
        yield site
    finally:
        await runner.cleanup()


@pytest.fixture
async def site():
    async with serving(Site()) as made:
        yield made


class Receiver:
    """The worker, and the address where it takes pings."""

    def __init__(self, process: WorkerProcess, settings: Settings, client) -> None:
        self.process = process
        self.settings = settings
        self.client = client
        self.port = settings.receiver_port
        self.url = f"http://127.0.0.1:{self.port}"

    async def post(self, path: str, body: bytes = b"", **more) -> tuple[int, str]:
        async with self.client.post(self.url + path, data=body, **more) as answer:
            return answer.status, await answer.text()

    async def post_json(self, path: str, value: object, **more) -> tuple[int, str]:
        async with self.client.post(self.url + path, json=value, **more) as answer:
            return answer.status, await answer.text()

    async def get(self, path: str, **query: str) -> tuple[int, str]:
        async with self.client.get(self.url + path, params=query) as answer:
            return answer.status, await answer.text()

    async def signals(self, count: int) -> list[Signal]:
        """So many signals, in any order; there must not be more."""
        async with reader(self.settings, SIGNALS) as topic:
            records = await topic.until(lambda got: len(got) >= count)
        assert len(records) == count
        return [decode(Signal, record.value) for record in records]


@pytest.fixture
async def start(local_broker, tmp_path):
    """A function that starts a receiver with some settings, and waits until it listens."""
    async with contextlib.AsyncExitStack() as stack:

        async def starting(**more) -> Receiver:
            settings = settings_for(
                local_broker.bootstrap_servers,
                f"receiver-{uuid.uuid4().hex[:8]}",
                **({"allow_private_hosts": True, "receiver_port": free_port()} | more),
            )
            process = stack.enter_context(worker("receiver", settings, tmp_path))
            client = await stack.enter_async_context(aiohttp.ClientSession())
            await process.ready()
            return Receiver(process, settings, client)

        yield starting
