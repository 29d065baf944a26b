"""A whole system as `freshet run` starts it, for tests that write to it while it works."""

import asyncio
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaProducer

from shared.contracts.messages import Bandwidth
from shared.contracts.topics import BANDWIDTH
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.units import SECONDS_PER_DAY

PATIENCE_SECONDS = 60.0
DAYS_PER_SECOND = 0.5
CRAWLS_PER_DAY = 60
CRAWLS_PER_SECOND = CRAWLS_PER_DAY * DAYS_PER_SECOND
"""Of the wall: the clock runs so much faster."""

HOSTS = 8
PAGES = [f"https://h{n % HOSTS}.example/{n}" for n in range(240)]
_PAGES_FILE = "url,importance\n" + "".join(f"{u},{1 + n % 5}\n" for n, u in enumerate(PAGES))
_EVENTS_FILE = "time_days,url,event,source\n" + "".join(
    f"{0.02 * n:.2f},{PAGES[n * 7 % len(PAGES)]},{kind},ping\n"
    for n in range(1, 3000)
    for kind in ("change", "signal")
)
_SETTINGS = {
    "FRESHET_REQUEST_TIMEOUT_SECONDS": "5",
    "FRESHET_KAFKA_SESSION_TIMEOUT_SECONDS": "6",
}


class LiveRun:
    """A run under way: where it is, what it does, and how to end it."""

    def __init__(self, folder: Path, broker: str, *arguments: str) -> None:
        (folder / "pages.csv").write_text(_PAGES_FILE)
        (folder / "events.csv").write_text(_EVENTS_FILE)
        self.directory = folder / "data" / "run"
        self._report_file = folder / "report.json"
        self._output = folder / "output.txt"
        self.crawls_per_day: float = CRAWLS_PER_DAY
        known = {"KAFKA_BOOTSTRAP_SERVERS", "DATABASE_URL"}
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("FRESHET_") and name not in known
        }
        command = [sys.executable, "-m", "services.cli.main", "run", "--no-view"]
        command += ["--data-dir", str(folder / "data"), "--report", str(self._report_file)]
        command += ["--pages", "pages.csv", "--events", "events.csv", "--partitions", "4"]
        command += ["--speed", str(DAYS_PER_SECOND), "--crawls-per-day", str(CRAWLS_PER_DAY)]
        with self._output.open("w") as output:
            self._process = subprocess.Popen(
                [*command, "--broker", broker, *arguments],
                env=environment | _SETTINGS,
                cwd=folder,
                stdout=output,
                stderr=output,
            )

    @property
    def settings(self) -> Settings:
        """What all processes of the run share."""
        text = (self.directory / "environment").read_text()
        given = dict(part.split("=", 1) for part in shlex.split(text) if "=" in part)
        names = ("FRESHET_TOPIC_PREFIX", "FRESHET_CLOCK_ORIGIN", "FRESHET_CLOCK_SPEED")
        values = {name.removeprefix("FRESHET_").lower(): given[name] for name in names}
        return Settings(
            kafka_bootstrap_servers=given["KAFKA_BOOTSTRAP_SERVERS"],
            database_url=given["DATABASE_URL"],
            partitions=int(given["FRESHET_PARTITIONS"]),
            clock_gate=given["FRESHET_CLOCK_GATE"],
            **values,
        )

    def status(self) -> dict[str, Any]:
        """The world's own account; empty before it begins."""
        with contextlib.suppress(OSError, ValueError):
            return json.loads((self.directory / "status.json").read_text())
        return {}

    def log(self, name: str) -> str:
        """What a process wrote."""
        return (self.directory / "logs" / f"{name}.log").read_text(errors="replace")

    async def until(self, met: Callable[[], bool], what: str) -> None:
        """Wait for something; fails with what the run wrote when it does not come."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not met():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no {what}; the run wrote:\n{self._output.read_text()}")
            await asyncio.sleep(0.1)

    async def is_steady(self) -> None:
        """Wait until crawls come at the budget's rate."""
        await self.until(
            lambda: self.status().get("achieved_per_second", 0) >= 0.95 * CRAWLS_PER_SECOND,
            "crawls at the budget's rate",
        )

    async def back_at_its_budget(self) -> None:
        """Wait until a harm is over: the rate is measured over seconds that came after it."""
        since = self.status()["seconds"]
        await self.until(lambda: self.status()["seconds"] >= since + 4, "going on")
        await self.is_steady()

    async def set_budget(self, crawls_per_day: float) -> None:
        """Publish another budget."""
        self.crawls_per_day = crawls_per_day
        publisher = Publisher(self.settings)
        await publisher.start()
        try:
            await publisher.send_global(BANDWIDTH, Bandwidth(crawls_per_day / SECONDS_PER_DAY))
        finally:
            await publisher.stop()

    def end(self) -> dict[str, Any]:
        """Stop the run as Ctrl-C does; returns its report."""
        self._process.send_signal(signal.SIGINT)
        assert self._process.wait(20) == 0, self._output.read_text()
        return json.loads(self._report_file.read_text())

    def close(self) -> None:
        """Leave nothing behind, whatever happened."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()


@contextlib.asynccontextmanager
async def live_run(folder: Path, broker: str = "local", *arguments: str) -> AsyncIterator[LiveRun]:
    """A run that is at its budget, and does not outlive the block."""
    run = LiveRun(folder, broker, *arguments)
    try:
        await run.is_steady()
        yield run
    finally:
        await asyncio.to_thread(run.close)


@contextlib.asynccontextmanager
async def raw_producer(settings: Settings) -> AsyncIterator[AIOKafkaProducer]:
    """A producer that checks nothing, as a foreign client would."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.kafka_bootstrap_servers, max_request_size=2_000_000
    )
    await producer.start()
    try:
        yield producer
    finally:
        await producer.stop()
