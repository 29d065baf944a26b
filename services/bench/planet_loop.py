"""One machine of many, with its own part of the pages: what everything on it uses, by what it does.

The system of `freshet run`, whose pages have the histories that pages have in the long run. It is
measured with its own crawls, with more of them, and with nothing to do.
"""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import click
import psycopg
from aiokafka import ConsumerRecord, TopicPartition

from services.bench.estimator_pipeline import fill_histories
from services.bench.loop import signals_per_page_and_day
from services.bench.processor_time import children_of, memory_of
from services.bench.real_system import RealSystem, environment, until_steady
from services.run.options import RunOptions
from services.world.plan import BudgetStep
from shared.contracts.codec import decode
from shared.contracts.messages import DemandCurve
from shared.contracts.topics import DEMAND_CURVES, TOPICS
from shared.runtime.kafka import make_consumer, partitions_of
from shared.store.connection import connect
from shared.units import SECONDS_PER_DAY

MORE: Final = 4.0
"""Times its own crawls, in the step with more: what a crawl costs is told from what it costs that
there are any."""

HELD: Final = 0.95
"""Of the crawls that are asked for: where fewer are made, processors lack."""

NEXT_TO_NONE: Final = 0.01
"""Of the crawls, with nothing to do: the crawlers are away then, and so are the pingers."""

_REFITS: Final = "FRESHET_PRIOR_REFIT_DAYS"
_NEVER_DAYS: Final = 10_000
"""Days pass in seconds here: a refit of all hosts every few days would count a thousandfold."""

_SETTLE_SECONDS: Final = 5.0
_PATIENCE_SECONDS: Final = 180.0
_SERVERS: Final = ("broker", "world")

_CLIENTS: Final = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend'"
_OWN: Final = " AND pid <> pg_backend_pid()"
_HOSTS: Final = "SELECT pg_total_relation_size('hosts')::float8 / greatest(count(*), 1) FROM hosts"
_LOG: Final = "SELECT wal_bytes::float8, wal_fpi::float8 FROM pg_stat_wal"


@dataclass(frozen=True, slots=True)
class Totals:
    """What has been used and written so far."""

    at: float
    """Wall time."""
    processor_seconds: Mapping[str, float]
    records: Mapping[str, int]
    """Topic → records, of all partitions."""
    sizes: Mapping[str, int]
    """Topic → bytes on the broker's disk."""
    log_bytes: float
    log_images: float


@dataclass(frozen=True, slots=True)
class Window:
    """What a second used and wrote, on average."""

    cores: Mapping[str, float]
    records: Mapping[str, float]
    sizes: Mapping[str, float]
    log_bytes: float
    log_images: float

    @staticmethod
    def between(first: Totals, last: Totals) -> "Window":
        """That from one moment to another."""
        seconds = last.at - first.at
        kinds = ("processor_seconds", "records", "sizes")
        used, records, sizes = (
            {name: (value - old.get(name, 0)) / seconds for name, value in new.items()}
            for old, new in ((getattr(first, kind), getattr(last, kind)) for kind in kinds)
        )
        return Window(
            used,
            records,
            sizes,
            (last.log_bytes - first.log_bytes) / seconds,
            (last.log_images - first.log_images) / seconds,
        )

    @property
    def crawls(self) -> float:
        """Requests a second."""
        return self.records["crawl-requests"]

    @property
    def signals(self) -> float:
        """Signals a second."""
        return self.records["signals"]


@dataclass(slots=True)
class Machine:
    """What was seen of it."""

    pages: int
    shards: int
    setup_seconds: Mapping[str, float]
    start_seconds: Mapping[str, float]
    """Processor seconds of each process until all were ready; PostgreSQL's since the import."""
    memory: dict[str, int] = field(default_factory=dict)
    """Bytes at most, by worker; of PostgreSQL, what is its own now, without connections."""
    connections: int = 0
    connection_bytes: float = 0.0
    host_bytes: float = 0.0
    """On the disk, a host, with its keys."""
    windows: dict[str, Window] = field(default_factory=dict)
    """`after a checkpoint` and `own`: with its own crawls; `more`; `none`."""
    reports: list[DemandCurve] = field(default_factory=list)
    """The last that its shards made."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a machine has of everything."""

    pages: int
    shards: int
    crawls: float
    """A second of the wall."""
    signals: float
    """About so many a second of the wall."""


def run(folder: Path, part: Part, seconds: float) -> Machine:
    """Run a machine.

    Args:
        folder: for its data.
        part: what it has.
        seconds: of each window.

    Raises:
        click.ClickException: it does not crawl so much.
    """
    with environment(_REFITS, str(_NEVER_DAYS)):
        return asyncio.run(_Rehearsal(folder, part, seconds).run())


def require_held(window: Window, rate: float) -> None:
    """Refuse what was measured where processors lack: work waits, and comes in larger batches.

    Raises:
        click.ClickException: there were fewer crawls than were asked for.
    """
    if window.crawls < HELD * rate:
        raise click.ClickException(
            f"{window.crawls:.4g} crawls/s were made of {rate:.4g}: this machine is too busy to "
            "measure what they cost; wait until it is not, or ask for fewer"
        )


class _Rehearsal:
    def __init__(self, folder: Path, part: Part, seconds: float) -> None:
        speed = part.signals / (part.pages * signals_per_page_and_day())
        self._rate, self._seconds = part.crawls, seconds
        self._system = RealSystem(
            RunOptions(
                world="generated",
                data_dir=folder,
                partitions=part.shards,
                pages=part.pages,
                speed=speed,
                budget=(BudgetStep(0.0, part.crawls / (speed * SECONDS_PER_DAY)),),
            )
        )
        self._pages, self._shards = part.pages, part.shards
        self._database_url = ""

    async def run(self) -> Machine:
        system = self._system
        with system.stack.locked():
            try:
                server = await self._start()
                machine = Machine(
                    self._pages, self._shards, system.setup_seconds, self._start_seconds(server)
                )
                if not await until_steady(system, 3, _PATIENCE_SECONDS):
                    raise click.ClickException(
                        f"{self._rate:g} crawls/s are not reached: fewer, or fewer pages"
                    )
                await self._measure(machine)
            finally:
                await system.stop()
        return machine

    async def _start(self) -> float:
        """Start everything; the processor seconds of PostgreSQL before the workers came."""
        before = 0.0

        def imported(database_url: str) -> None:
            nonlocal before
            fill_histories(database_url)
            self._database_url = database_url
            before = self._system.usage()["postgres"].with_children

        await self._system.start(imported)
        return before

    def _start_seconds(self, server_before: float) -> dict[str, float]:
        used = {name: usage.with_children for name, usage in self._system.usage().items()}
        used["postgres"] -= server_before
        return used

    async def _measure(self, machine: Machine) -> None:
        windows = machine.windows
        windows["after a checkpoint"] = await self._window(self._rate, checkpoint=True)
        windows["own"] = await self._window(self._rate)
        require_held(windows["own"], self._rate)
        windows["more"] = await self._window(MORE * self._rate)
        require_held(windows["more"], MORE * self._rate)
        self._note_memory(machine)
        machine.reports = [
            decode(DemandCurve, record.value) for record in await self._last_reports()
        ]
        await self._system.kill("world")
        windows["none"] = await self._window(NEXT_TO_NONE * self._rate)

    async def _window(self, rate: float, *, checkpoint: bool = False) -> Window:
        await self._system.set_rate(rate)
        await asyncio.sleep(_SETTLE_SECONDS)
        if checkpoint:
            with self._database() as connection:
                connection.execute("CHECKPOINT")
        first = await self._totals()
        await asyncio.sleep(self._seconds)
        return Window.between(first, await self._totals())

    async def _totals(self) -> Totals:
        usage = self._system.usage()
        with self._database() as connection:
            log_bytes, log_images = connection.execute(_LOG).fetchone() or (0.0, 0.0)
        records = await self._records()
        return Totals(
            self._system.now(),
            {name: used.with_children for name, used in usage.items()},
            records,
            {topic: self._size(topic) for topic in records},
            log_bytes,
            log_images,
        )

    async def _records(self) -> dict[str, int]:
        settings = self._system.stack.settings
        places = {
            topic.name: [
                TopicPartition(settings.topic(topic.name), number)
                for number in range(partitions_of(topic, settings))
            ]
            for topic in TOPICS
        }
        consumer = make_consumer(settings)
        await consumer.start()
        try:
            ends = await consumer.end_offsets([p for group in places.values() for p in group])
        finally:
            await consumer.stop()
        return {name: sum(ends[place] for place in group) for name, group in places.items()}

    def _size(self, topic: str) -> int:
        name = self._system.stack.settings.topic(topic)
        folder = self._system.stack.directory / "kafka"
        segments = folder.rglob(f"{name}*/**/*.log")
        return sum(segment.stat().st_size for segment in segments)

    async def _last_reports(self) -> list[ConsumerRecord]:
        """The last report of each shard."""
        settings = self._system.stack.settings
        place = TopicPartition(settings.topic(DEMAND_CURVES.name), 0)
        consumer = make_consumer(settings)
        await consumer.start()
        try:
            consumer.assign([place])
            end = (await consumer.end_offsets([place]))[place]
            consumer.seek(place, max(end - 4 * self._shards, 0))
            found: dict[bytes | None, ConsumerRecord] = {}
            while await consumer.position(place) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    found |= {record.key: record for record in records}
            return list(found.values())
        finally:
            await consumer.stop()

    def _note_memory(self, machine: Machine) -> None:
        for child in self._system.stack.supervisor.children():
            if child.pid is not None and child.name not in (*_SERVERS, "postgres"):
                machine.memory[child.name] = memory_of(child.pid)[0]
        with self._database() as connection:
            clients = {row[0] for row in connection.execute(_CLIENTS + _OWN)}
            machine.host_bytes = (connection.execute(_HOSTS).fetchone() or (0.0,))[0]
            ours = {row[0] for row in connection.execute(_CLIENTS)}
        server = self._server()
        own = {pid: memory_of(pid)[1] for pid in (server, *children_of(server))}
        machine.connections = len(clients)
        machine.connection_bytes = sum(own.get(pid, 0) for pid in clients) / max(len(clients), 1)
        machine.memory["postgres"] = sum(n for pid, n in own.items() if pid not in ours)

    def _server(self) -> int:
        children = self._system.stack.supervisor.children()
        found = [child.pid for child in children if child.name == "postgres" and child.pid]
        if not found:
            raise RuntimeError("PostgreSQL does not run")
        return found[0]

    @contextmanager
    def _database(self) -> Iterator[psycopg.Connection]:
        with connect(self._database_url, "bench", autocommit=True) as connection:
            yield connection
