"""The system under test: real servers, real workers, and a network between them that can fail."""

import asyncio
import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import aiohttp
import psycopg

from deploy.local.apache import ApacheKafka
from deploy.local.kafka import KafkaProcess, LocalBroker
from deploy.local.postgres import EmbeddedPostgres
from deploy.local.process import StartError, free_port, last_lines
from deploy.local.supervisor import ChildSpec, Supervisor, python_argv
from migrations.upgrade import migrate
from services.verify.network import Network
from services.verify.plan import (
    PARTITIONS,
    REQUEST_TIMEOUT_SECONDS,
    SESSION_TIMEOUT_SECONDS,
    VerifyPlan,
)
from shared.contracts.topic_safety import STAMPS
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS, TOPICS, Topic
from shared.runtime.kafka import ensure_topics
from shared.runtime.settings import Settings, load_settings
from shared.units import SECONDS_PER_DAY

LOOPBACK: Final = "127.0.0.1"
DATABASE: Final = "freshet"
START_SECONDS: Final = 240.0
"""The first start on a machine compiles the mathematics."""

STOP_SECONDS: Final = 10.0
"""A worker that is told to stop is gone within this."""

DEBOUNCE_SECONDS: Final = 1.0
FAILED_RETRY_SECONDS: Final = 3.0
_SOCKET: Final = ".s.PGSQL.5432"

_STAMPED: Final = (CRAWL_REQUESTS.name, CRAWL_OUTCOMES.name)
"""Topics that have the broker's own times here, so that the checks go by when it had a record. No
worker minds: each goes by the times in the messages."""

T = TypeVar("T")


def _with_own_times(topic: Topic) -> Topic:
    if topic.name not in _STAMPED:
        return topic
    return replace(topic, config=topic.config | {STAMPS: "LogAppendTime"})


class System:
    """Servers and workers, each of which can be harmed."""

    def __init__(self, plan: VerifyPlan, directory: Path) -> None:
        self.directory = directory
        self.network = Network()
        self.supervisor = Supervisor(directory)
        self.ports: dict[str, int] = {}
        """HTTP port of each worker that should run, by instance."""
        self._plan = plan
        self._proxy_port = free_port()
        make = ApacheKafka if plan.broker == "apache" else LocalBroker
        self.broker: KafkaProcess = make(directory / "kafka", advertised_port=self._proxy_port)
        self.postgres = EmbeddedPostgres(directory / "postgres")
        # Children die with the thread that started them: this one lasts as long as the system.
        self._server_thread = ThreadPoolExecutor(1, "servers")
        self._sockets = Path(tempfile.mkdtemp(prefix="freshet-verify-"))

    @property
    def settings(self) -> Settings:
        """For clients that are not part of the system: past the failing network to PostgreSQL."""
        return load_settings(
            kafka_bootstrap_servers=self.broker.bootstrap_servers,
            database_url=self.postgres.database_uri(DATABASE),
            instance="verify",
            **self._shared(),
        )

    @property
    def database_url(self) -> str:
        """The database, past the failing network."""
        return self.postgres.database_uri(DATABASE)

    @property
    def logs(self) -> Path:
        """Where every process writes its log."""
        return self.directory / "logs"

    def _shared(self) -> dict[str, float | int]:
        return {
            "partitions": PARTITIONS,
            "kafka_session_timeout_seconds": SESSION_TIMEOUT_SECONDS,
            "request_timeout_seconds": REQUEST_TIMEOUT_SECONDS,
            "signal_debounce_seconds": DEBOUNCE_SECONDS,
            "failed_retry_seconds": FAILED_RETRY_SECONDS,
            "default_max_age_days": self._plan.max_age_seconds / SECONDS_PER_DAY,
        }

    async def in_server_thread(self, function: Callable[[], T]) -> T:
        """Do something with a server: all of it in one thread, one after the other."""
        return await asyncio.get_running_loop().run_in_executor(self._server_thread, function)

    async def start_servers(self) -> None:
        """Start PostgreSQL and the broker; make tables and topics.

        Raises:
            StartError: one does not come up.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        await self.in_server_thread(self.postgres.start)
        await self.in_server_thread(self.broker.start)
        await self.in_server_thread(lambda: self.postgres.create_database(DATABASE))
        broker_port = int(self.broker.bootstrap_servers.rpartition(":")[2])
        await self.network.open_kafka(self._proxy_port, broker_port)
        await asyncio.to_thread(migrate, self.database_url, PARTITIONS)
        await ensure_topics(self.settings, tuple(map(_with_own_times, TOPICS)))

    def socket_of_postgres(self) -> Path:
        """PostgreSQL's own socket."""
        folder = self.database_url.rpartition("host=")[2]
        return Path(folder) / _SOCKET

    def copy_database(self, name: str) -> str:
        """Copy the database while nobody is connected to it; the address of the copy."""
        with psycopg.connect(self.postgres.uri, autocommit=True) as connection:
            statement = "CREATE DATABASE {} TEMPLATE {}"
            names = map(psycopg.sql.Identifier, (name, DATABASE))
            connection.execute(psycopg.sql.SQL(statement).format(*names))
        return self.postgres.database_uri(name)

    async def start_worker(self, instance: str) -> None:
        """Start a worker, whose kind is the first part of its name."""
        if instance not in self.ports:
            self.ports[instance] = free_port()
            folder = self._sockets / instance
            if not folder.exists():
                folder.mkdir()
                await self.network.open_postgres(instance, folder, self.socket_of_postgres())
        shared = {f"FRESHET_{k.upper()}": repr(v) for k, v in self._shared().items()}
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": f"{LOOPBACK}:{self._proxy_port}",
            "DATABASE_URL": f"postgresql://postgres@/{DATABASE}?host={self._sockets / instance}",
            "FRESHET_INSTANCE": instance,
            "FRESHET_HTTP_HOST": LOOPBACK,
            "FRESHET_HTTP_PORT": str(self.ports[instance]),
            **shared,
        }
        kind = instance.partition("-")[0]
        argv = python_argv("-m", "services.cli.main", "worker", kind)
        await self.supervisor.start([ChildSpec(name=instance, argv=argv, env=environment)])

    async def end_worker(self, instance: str) -> None:
        """Tell a worker to stop, for good."""
        self.ports.pop(instance, None)
        await self.supervisor.end(instance, STOP_SECONDS)

    def instances(self, kind: str) -> list[str]:
        """The workers of a kind that should run."""
        return sorted(name for name in self.ports if name.partition("-")[0] == kind)

    def pid_of(self, instance: str) -> int | None:
        """Process of a worker; None while it is not running."""
        found = (c.pid for c in self.supervisor.children() if c.name == instance)
        return next(found, None)

    def restarts(self) -> dict[str, int]:
        """How often each worker was started again."""
        return {child.name: child.restarts for child in self.supervisor.children()}

    def send(self, instance: str, number: int) -> bool:
        """Send a signal to a worker; whether it was there."""
        pid = self.pid_of(instance)
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False

    async def why_not_ready(self, instance: str) -> str | None:
        """What a worker waits for; None: nothing."""
        port = self.ports.get(instance)
        timeout = aiohttp.ClientTimeout(total=2.0)
        with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with (
                aiohttp.ClientSession(timeout=timeout) as client,
                client.get(f"http://{LOOPBACK}:{port}/readyz") as answer,
            ):
                return None if answer.status == 200 else (await answer.text()).strip()
        return "it does not answer"

    async def wait_until_ready(self, seconds: float = START_SECONDS) -> None:
        """Wait until every worker is ready.

        Raises:
            StartError: one is not in time; has the end of its log.
        """
        deadline = time.monotonic() + seconds
        for instance in list(self.ports):
            while reason := await self.why_not_ready(instance):
                if time.monotonic() > deadline:
                    log = last_lines(self.logs / f"{instance}.log")
                    raise StartError(f"{instance} is not ready ({reason}); its log ends:\n{log}")
                await asyncio.sleep(0.1)

    async def stop(self) -> None:
        """Stop everything, whatever state it is in."""
        self.network.restore()
        await self.supervisor.stop()
        await self.network.close()
        await self.in_server_thread(self.broker.kill)
        await self.in_server_thread(self.postgres.stop)
        self._server_thread.shutdown()
        shutil.rmtree(self._sockets, ignore_errors=True)
