"""Starts processes in order, restarts the dead, stops all, and leaves none behind."""

import asyncio
import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import aiohttp
import msgspec
import structlog

from deploy.local.process import StartError, last_lines, signal_group, spawn

Ready = str | Callable[[], bool | Awaitable[bool]]
"""An HTTP address that answers 200 when ready, or a function that tells."""

STOP_SECONDS = 5.0
"""All children are gone within this time after a stop."""
CLIENT_STOP_SECONDS = 3.0
"""Part of it for the children that are no servers; what they leave is for the servers."""
KILL_RESERVE_SECONDS = 0.5
"""Part of it that is kept for killing those who do not listen."""
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 15.0
STEADY_SECONDS = 30.0
"""A child that ran for so long starts again without a longer wait."""
_POLL_SECONDS = 0.05

log = structlog.get_logger(__name__)


class ChildState(StrEnum):
    """What a child is doing."""

    WAITING = "waiting"
    STARTING = "starting"
    RUNNING = "running"
    BACKING_OFF = "backing off"
    STOPPED = "stopped"


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A process to be run.

    `env` is added to the supervisor's own environment. `ready` None means ready at once. The child
    gets `stop_signal` at a stop and `death_signal` when the supervisor itself is killed. Servers
    are stopped only after all other children.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str] = {}
    ready: Ready | None = None
    ready_seconds: float = 60.0
    restart: bool = True
    is_server: bool = False
    user: str | None = None
    stop_signal: int = signal.SIGTERM
    death_signal: int = signal.SIGKILL


class ChildStatus(msgspec.Struct, frozen=True):
    """A child as the terminal view shows it."""

    name: str
    pid: int | None
    state: ChildState
    restarts: int


class _Child:
    def __init__(self, spec: ChildSpec, log_path: Path) -> None:
        self.spec = spec
        self.log_path = log_path
        self.state = ChildState.WAITING
        self.restarts = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.watch: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.poll() is None


class Supervisor:
    """Runs children with their logs under `data_dir`/logs.

    Use it from the main thread: on Linux the children die with the thread that started them.
    """

    def __init__(self, data_dir: Path) -> None:
        self._log_dir = data_dir / "logs"
        self._children: list[_Child] = []

    def children(self) -> list[ChildStatus]:
        """Return the state of every child, in the order of their start."""
        return [
            ChildStatus(
                child.spec.name,
                child.process.pid if child.process is not None and child.alive else None,
                child.state,
                child.restarts,
            )
            for child in self._children
        ]

    async def start(self, specs: Sequence[ChildSpec]) -> None:
        """Start children one after the other, each when the one before is ready.

        Can be called again for more. Raises StartError if one does not get ready; all are stopped
        then.
        """
        self._log_dir.mkdir(parents=True, exist_ok=True)
        fresh = [_Child(spec, self._log_dir / f"{spec.name}.log") for spec in specs]
        self._children += fresh
        try:
            for child in fresh:
                await self._launch(child)
                if child.spec.restart:
                    child.watch = asyncio.create_task(self._keep_alive(child))
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop all children, last started first and servers last, within `STOP_SECONDS`."""
        for child in self._children:
            if child.watch is not None:
                child.watch.cancel()
        started = time.monotonic()
        clients = [child for child in self._children if not child.spec.is_server]
        servers = [child for child in self._children if child.spec.is_server]
        await _end(clients, started + CLIENT_STOP_SECONDS)
        await _end(servers, started + STOP_SECONDS - KILL_RESERVE_SECONDS)

    async def end(self, name: str, grace_seconds: float = STOP_SECONDS) -> None:
        """Stop one child for good; one that is not there is no error."""
        ended = [child for child in self._children if child.spec.name == name]
        self._children = [child for child in self._children if child.spec.name != name]
        for child in ended:
            if child.watch is not None:
                child.watch.cancel()
        await _end(ended, time.monotonic() + grace_seconds)

    async def wait_for_exit(self, name: str) -> int:
        """Wait until a child that is not restarted has ended; return its exit code."""
        child = next(child for child in self._children if child.spec.name == name)
        if child.process is None:
            raise StartError(f"{name} was never started")
        await _until_exit(child.process)
        child.state = ChildState.STOPPED
        return child.process.wait()

    async def _launch(self, child: _Child) -> None:
        """Start a child and wait until it is ready; raises StartError."""
        spec = child.spec
        child.state = ChildState.STARTING
        try:
            child.process = spawn(
                spec.argv,
                child.log_path,
                {**os.environ, **spec.env},
                spec.user,
                spec.death_signal,
            )
        except OSError as error:
            raise StartError(f"{spec.name} cannot be started: {error}") from error
        started = time.monotonic()
        while not await _is_ready(spec.ready):
            late = time.monotonic() - started > spec.ready_seconds
            if late or not child.alive:
                raise StartError(self._obituary(child, late=late))
            await asyncio.sleep(_POLL_SECONDS)
        child.state = ChildState.RUNNING
        log.info(
            "child is ready",
            child=spec.name,
            pid=child.process.pid,
            seconds=round(time.monotonic() - started, 3),
        )

    async def _keep_alive(self, child: _Child) -> None:
        backoff = FIRST_BACKOFF_SECONDS
        since = time.monotonic()
        while True:
            if child.process is not None:
                await _until_exit(child.process)
            if time.monotonic() - since > STEADY_SECONDS:
                backoff = FIRST_BACKOFF_SECONDS
            child.state = ChildState.BACKING_OFF
            log.warning(
                "child died and is started again",
                child=child.spec.name,
                exit_code=child.process.poll() if child.process else None,
                restarts=child.restarts,
                wait_seconds=backoff,
                last_lines=last_lines(child.log_path),
            )
            if child.process is not None:
                signal_group(child.process, signal.SIGKILL)
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, MAX_BACKOFF_SECONDS)
            child.restarts += 1
            since = time.monotonic()
            try:
                await self._launch(child)
            except StartError as error:
                log.warning("child does not start", child=child.spec.name, reason=str(error))
                await _end([child], time.monotonic())

    def _obituary(self, child: _Child, *, late: bool) -> str:
        code = child.process.poll() if child.process else None
        why = f"is not ready after {child.spec.ready_seconds:.0f} s" if late else f"ended: {code}"
        end = last_lines(child.log_path)
        return f"{child.spec.name} {why}; the end of {child.log_path}:\n{end}"


async def _until_exit(process: subprocess.Popen[bytes], deadline: float = math.inf) -> None:
    while process.poll() is None and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(_POLL_SECONDS)  # no event tells of a process that is not asyncio's


async def _end(children: Sequence[_Child], deadline: float) -> None:
    """Signal the children in reverse order; kill those that are there after the deadline."""
    running = [(c, c.process) for c in reversed(children) if c.process is not None]
    for child, process in running:
        if process.poll() is None:
            process.send_signal(child.spec.stop_signal)
    for child, process in running:
        await _until_exit(process, deadline)
        if process.poll() is None:
            log.warning("child does not stop and is killed", child=child.spec.name)
            process.kill()
        signal_group(process, signal.SIGKILL)
        process.wait()
    for child in children:
        child.state = ChildState.STOPPED


async def _is_ready(ready: Ready | None) -> bool:
    if ready is None:
        return True
    if isinstance(ready, str):
        return await _answers(ready)
    answer = await asyncio.to_thread(ready)
    return answer if isinstance(answer, bool) else await answer


async def _answers(url: str) -> bool:
    timeout = aiohttp.ClientTimeout(total=2.0)
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(url) as answer:
            return answer.status == 200
    return False


def python_argv(*arguments: str) -> list[str]:
    """Return a command that runs this very Python."""
    return [sys.executable, *arguments]
