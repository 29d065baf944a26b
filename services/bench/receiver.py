"""How many URLs a second the receiver takes by IndexNow, and how soon it answers."""

import asyncio
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec
import numpy as np
from aiohttp import web

from deploy.local.kafka import LocalBroker
from deploy.local.process import free_port, spawn, stop_process
from services.bench.processor_time import usage_of
from services.bench.receiver_attack import attacking

KEY: Final = "0123456789abcdef"
GOAL: Final = 20_000
"""URLs a second, on one core."""

_SITES: Final = 4
_BODIES: Final = 50
_START_SECONDS: Final = 120.0


@dataclass(frozen=True, slots=True)
class _Target:
    """A receiver that runs."""

    url: str
    process_id: int
    bodies: Sequence[bytes]
    """Of posts, each of a site that shows its key."""
    urls_per_post: int


def run(
    seconds: float = 10.0,
    urls_per_post: int = 200,
    connections: int = 8,
    rate: float = GOAL / 2,
    bootstrap_servers: str | None = None,
) -> dict[str, Any]:
    """Measure a receiver in a process of its own, by HTTP.

    Args:
        seconds: of each of the three parts.
        urls_per_post: URLs in one submission.
        connections: that post at full speed.
        rate: URLs a second at which answers are timed.
        bootstrap_servers: of a broker; None: a local one is started.

    Returns:
        `urls_per_second` at full speed, and `urls_per_core_second`: by the processor time of the
        receiver alone, which others on the machine do not shorten; at `paced_urls_per_second`
        `answer_ms_p50` and `answer_ms_p99`; the same beside hostile senders, `attacked_…`, with
        what became of their `attacks`; `failed`: posts without a 200.
    """
    return asyncio.run(_run(seconds, urls_per_post, connections, rate, bootstrap_servers))


async def _run(
    seconds: float, urls_per_post: int, connections: int, rate: float, servers: str | None
) -> dict[str, Any]:
    async with _receiver(urls_per_post, servers) as target:
        # Each key is fetched, and each topic's partitions are known, before anything is measured.
        await _posts(target, [0.0] * len(target.bodies), connections)
        full = await _full_speed(target, seconds, connections)
        paced = await _paced(target, seconds, rate)
        async with attacking(target.url) as attacks:
            attacked = await _paced(target, seconds, rate)
        return {
            "urls_per_post": urls_per_post,
            **full,
            "paced_urls_per_second": rate,
            **paced,
            **{f"attacked_{name}": value for name, value in attacked.items()},
            "attacks": dict(attacks),
        }


async def _full_speed(target: _Target, seconds: float, connections: int) -> dict[str, Any]:
    ends = time.perf_counter() + seconds
    before, began = usage_of(target.process_id).seconds, time.perf_counter()
    taken = failed = 0

    async def post(client: aiohttp.ClientSession, first: int) -> None:
        nonlocal taken, failed
        number = first
        while time.perf_counter() < ends:
            status, _ = await _post(client, target, number)
            number += connections
            taken += status == 200
            failed += status != 200

    async with _client(connections) as client:
        await asyncio.gather(*(post(client, first) for first in range(connections)))
    passed = time.perf_counter() - began
    used = usage_of(target.process_id).seconds - before
    urls = taken * target.urls_per_post
    return {
        "urls_per_second": round(urls / passed),
        "urls_per_core_second": round(urls / max(used, 0.01)),
        "cores": round(used / passed, 2),
        "failed": failed,
    }


async def _paced(target: _Target, seconds: float, rate: float) -> dict[str, Any]:
    count = int(seconds * rate / target.urls_per_post)
    times = [n * target.urls_per_post / rate for n in range(count)]
    before = usage_of(target.process_id).seconds
    answers = await _posts(target, times, 0)
    took = np.array([latency for _, latency in answers]) * 1000.0
    return {
        "answer_ms_p50": round(float(np.percentile(took, 50)), 1),
        "answer_ms_p99": round(float(np.percentile(took, 99)), 1),
        "failed_paced": sum(status != 200 for status, _ in answers),
        "cores_paced": round((usage_of(target.process_id).seconds - before) / seconds, 2),
    }


async def _posts(
    target: _Target, times: Sequence[float], connections: int
) -> list[tuple[int, float]]:
    """Posts at their times, whether or not the ones before are answered: (status, seconds)."""
    began = time.perf_counter()

    async def post(client: aiohttp.ClientSession, number: int, at: float) -> tuple[int, float]:
        await asyncio.sleep(max(began + at - time.perf_counter(), 0.0))
        due = began + at if at else time.perf_counter()
        status, ended = await _post(client, target, number)
        return status, ended - due

    async with _client(connections) as client:
        return await asyncio.gather(*(post(client, n, at) for n, at in enumerate(times)))


async def _post(client: aiohttp.ClientSession, target: _Target, number: int) -> tuple[int, float]:
    body = target.bodies[number % len(target.bodies)]
    async with client.post(f"{target.url}/indexnow", data=body) as answer:
        await answer.read()
        return answer.status, time.perf_counter()


def _client(connections: int) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=connections))


@contextlib.asynccontextmanager
async def _receiver(urls_per_post: int, servers: str | None) -> AsyncIterator[_Target]:
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="freshet-bench-")))
        if servers is None:
            broker = LocalBroker(folder / "broker")
            await asyncio.to_thread(broker.start)
            stack.callback(broker.stop)
            servers = broker.bootstrap_servers
        sites = [await stack.enter_async_context(_site()) for _ in range(_SITES)]
        port, health = free_port(), free_port()
        environment = dict(os.environ) | {
            "KAFKA_BOOTSTRAP_SERVERS": servers,
            "FRESHET_TOPIC_PREFIX": f"bench-receiver-{time.time_ns()}-",
            "FRESHET_HTTP_PORT": str(health),
            "FRESHET_RECEIVER_PORT": str(port),
            "FRESHET_ALLOW_PRIVATE_HOSTS": "true",
            "FRESHET_RECEIVER_URLS_PER_SENDER_PER_SECOND": "1e9",
        }
        code = "from services.receiver.worker import main; main()"
        process = spawn([sys.executable, "-c", code], folder / "receiver.log", environment)
        stack.callback(stop_process, process)
        await _until_ready(health)
        bodies = [_body(sites[n % _SITES], n, urls_per_post) for n in range(_BODIES)]
        yield _Target(f"http://127.0.0.1:{port}", process.pid, bodies, urls_per_post)


async def _until_ready(port: int) -> None:
    async with aiohttp.ClientSession() as client, asyncio.timeout(_START_SECONDS):
        while True:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                async with client.get(f"http://127.0.0.1:{port}/readyz") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def _site() -> AsyncIterator[str]:
    """A host that shows its key; its authority."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=KEY)

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    port = free_port()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def _body(host: str, number: int, urls: int) -> bytes:
    listed = [f"http://{host}/section-{number}/article-{n}.html" for n in range(urls)]
    return msgspec.json.encode({"host": host, "key": KEY, "urlList": listed})
