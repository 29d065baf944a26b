"""Waiting until all processes of a run can do their work."""

import asyncio
import contextlib
import time

import aiohttp

from deploy.local.process import last_lines
from services.run.errors import RunFailed
from services.run.stack import LOOPBACK, Stack

READY_SECONDS = 600.0
"""The first start on a machine compiles the mathematics, a minute or two of a core: on one that is
busy with other things that takes many."""

LOADED_PAGES_PER_SECOND = 20_000
"""On a busy machine, by all workers; a run with many pages gets more time to be ready."""

MOST_RESTARTS = 2
"""A process that dies more often before it was ever ready will not get better."""

SHARDS_SECONDS = 10.0
"""The coordinator hears of the shards and shares the budget out, or the run begins without."""

_LOOK_SECONDS = 0.1


async def wait_until_ready(stack: Stack) -> None:
    """Wait until every worker, and the world, says that it is ready, and the budget is given out.

    Raises:
        RunFailed: one dies again and again, or is not ready in time; has the end of its log.
    """
    waiting = dict.fromkeys(stack.ports, "starting")
    patience = READY_SECONDS + stack.options.pages / LOADED_PAGES_PER_SECOND
    deadline = time.monotonic() + patience
    timeout = aiohttp.ClientTimeout(total=2.0)
    async with aiohttp.ClientSession(timeout=timeout) as client:
        while waiting:
            for name in list(waiting):
                waiting[name] = await _why_not_ready(client, stack.ports[name]) or ""
                if not waiting[name]:
                    del waiting[name]
            _check(stack, waiting, late=time.monotonic() > deadline)
            await asyncio.sleep(_LOOK_SECONDS)
        deadline = time.monotonic() + SHARDS_SECONDS
        while time.monotonic() < deadline:
            if await _all_shards_have_a_share(client, stack):
                return
            await asyncio.sleep(_LOOK_SECONDS)


async def _all_shards_have_a_share(client: aiohttp.ClientSession, stack: Stack) -> bool:
    """Whether the coordinator has heard of every shard and given out the whole budget."""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError):
        url = f"http://{LOOPBACK}:{stack.ports['coordinator']}/state.json"
        async with client.get(url) as answer:
            state = await answer.json()
        shares = sum(shard["share"] for shard in state["shards"])
        return bool(state["live_shards"] >= stack.settings.partitions and shares > 0.999)
    return False


async def _why_not_ready(client: aiohttp.ClientSession, port: int) -> str | None:
    """What a process says that it waits for; None: it is ready."""
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with client.get(f"http://{LOOPBACK}:{port}/readyz") as answer:
            return None if answer.status == 200 else (await answer.text()).strip()
    return "starting"


def _check(stack: Stack, waiting: dict[str, str], *, late: bool) -> None:
    for child in stack.supervisor.children():
        if child.name not in waiting:
            continue
        dead = child.pid is None and (child.name == "world" or child.restarts >= MOST_RESTARTS)
        if dead or late:
            log = stack.logs / f"{child.name}.log"
            why = "dies" if dead else "was not ready in time"
            raise RunFailed(
                f"{child.name} {why} ({waiting[child.name]}); the end of {log}:\n{last_lines(log)}"
            )
