"""Workers as processes of their own, as operators run them, for tests against real servers."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from forking import ForkedProcess, forked
from pydantic import SecretStr

from deploy.local.process import free_port
from shared.contracts.topics import Topic
from shared.runtime.kafka import partitions_of
from shared.runtime.settings import Settings

PATIENCE_SECONDS = 90.0
"""The first worker after a change of the compiled code compiles it."""


_SET_CLOCK = """
import pathlib, time
real, path = time.time, pathlib.Path({path!r})
time.time = lambda: real() + float(path.read_text())
"""


def settings_for(bootstrap_servers: str, prefix: str, **more: Any) -> Settings:
    """Settings of one test: its own topics and groups, few partitions."""
    values: dict[str, Any] = {
        "kafka_bootstrap_servers": bootstrap_servers,
        "topic_prefix": f"{prefix}-",
        "partitions": 4,
        "instance": "test",
    }
    return Settings(**(values | more))


def _as_variable(value: Any) -> str:
    """A setting as the environment has it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple | dict):
        return json.dumps(value, default=_as_variable)
    return str(value)


def variables_of(settings: Settings) -> dict[str, str]:
    """The settings that are set as the environment has them, for workers and commands alike."""
    names = {"kafka_bootstrap_servers": "KAFKA_BOOTSTRAP_SERVERS", "database_url": "DATABASE_URL"}
    fields = settings.model_fields_set | names.keys()
    if settings.databases is not None:
        fields -= {"database_url"}  # they stand in its place
    return {
        names.get(field, f"FRESHET_{field.upper()}"): _as_variable(value)
        for field in fields
        if (value := getattr(settings, field)) is not None
    }


class WorkerProcess:
    """A worker that runs as `freshet worker NAME` does."""

    def __init__(
        self,
        name: str,
        settings: Settings,
        log: Path,
        clock: Path | None = None,
        variables: Mapping[str, str] | None = None,
        alone: bool = False,
    ) -> None:
        """Start it.

        Args:
            name: of the worker.
            settings: of it.
            log: where it writes.
            clock: a file with the seconds by which somebody has set its machine's clock forward.
            variables: of its environment, besides.
            alone: it begins with nothing, and is not forked from a process that has loaded what it
                loads; so does one with a clock.
        """
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        environment = {k: v for k, v in os.environ.items() if not k.startswith("FRESHET_")}
        environment |= {"FRESHET_HTTP_PORT": str(self.port)} | variables_of(settings)
        environment |= variables or {}
        if clock is None and not alone:
            self._process: subprocess.Popen[bytes] | ForkedProcess = forked(name, environment, log)
            return
        code = f"from services.cli.main import main; main(['worker', {name!r}])"
        if clock is not None:
            code = _SET_CLOCK.format(path=str(clock)) + code
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code], env=environment, stdout=output, stderr=output
            )

    @property
    def log(self) -> str:
        """What it wrote."""
        return self._log.read_text()

    async def ready(self) -> None:
        """Wait until it says that it is ready."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                status, _ = await self.get("/readyz")
                if status == 200:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"the worker is not ready:\n{self.log}")

    async def get(self, path: str) -> tuple[int, bytes]:
        """One HTTP answer: status and body."""
        async with aiohttp.ClientSession() as client, client.get(self.url + path) as answer:
            return answer.status, await answer.read()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code; None: it runs."""
        return self._process.poll()

    async def not_ready(self, reason: str) -> None:
        """Wait until it says why it is not ready."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        said = b""
        while time.monotonic() < deadline and self._process.poll() is None:
            with contextlib.suppress(aiohttp.ClientError, OSError):
                status, said = await self.get("/readyz")
                if status == 503 and reason.encode() in said:
                    return
            await asyncio.sleep(0.05)
        raise AssertionError(f"it does not say {reason!r}, but {said!r}:\n{self.log}")

    async def exposes(self, line: bytes) -> None:
        """Wait until a line is among its metrics."""
        said = b""
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                while line not in said:
                    await asyncio.sleep(0.05)
                    with contextlib.suppress(aiohttp.ClientError, OSError):
                        said = (await self.get("/metrics"))[1]
        except TimeoutError:
            raise AssertionError(f"it does not expose {line!r}:\n{self.log}") from None

    def terminate(self) -> None:
        """Ask it to stop, without waiting."""
        self._process.send_signal(signal.SIGTERM)

    def hang_up(self) -> None:
        """Ask it to read its settings again."""
        self._process.send_signal(signal.SIGHUP)

    def pause(self) -> None:
        """Let it stand still, as a machine that is overloaded or suspended would."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a crash would."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Ask it to stop; returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(15)
        except subprocess.TimeoutExpired:
            self.kill()
            raise


@contextlib.contextmanager
def worker(
    name: str,
    settings: Settings,
    directory: Path,
    clock: Path | None = None,
    variables: Mapping[str, str] | None = None,
    alone: bool = False,
) -> Iterator[WorkerProcess]:
    """A worker that does not outlive the block; what is not named here as for `WorkerProcess`."""
    log = directory / f"{name}-{settings.instance}.log"
    process = WorkerProcess(name, settings, log, clock, variables, alone)
    try:
        yield process
    finally:
        process.stop()


@contextlib.asynccontextmanager
async def reader(settings: Settings, topic: Topic) -> AsyncIterator["TopicReader"]:
    """All records of a topic, from its beginning."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        name = settings.topic(topic.name)
        consumer.assign([TopicPartition(name, p) for p in range(partitions_of(topic, settings))])
        await consumer.seek_to_beginning()
        yield TopicReader(consumer)
    finally:
        await consumer.stop()


class TopicReader:
    """Gathers the records of a topic as they come."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self.records: list[ConsumerRecord] = []

    async def until(self, enough: Any, seconds: float = PATIENCE_SECONDS) -> list[ConsumerRecord]:
        """Read until `enough(records)`; fails when that takes too long."""
        deadline = time.monotonic() + seconds
        while not enough(self.records):
            if time.monotonic() > deadline:
                raise AssertionError(f"only {len(self.records)} records came: {self.records[-3:]}")
            for part in (await self._consumer.getmany(timeout_ms=100)).values():
                self.records += part
        return self.records
