"""The system under test: real servers, real workers, and a network between them that can fail."""

import asyncio
import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

import aiohttp
import psycopg

from deploy.local.process import StartError, free_port, last_lines
from deploy.local.supervisor import ChildSpec, Supervisor, python_argv
from migrations.upgrade import migrate
from services.verify.disks import keep_mounts_apart
from services.verify.network import Network
from services.verify.plan import (
    PARTITIONS,
    REQUEST_TIMEOUT_SECONDS,
    SESSION_TIMEOUT_SECONDS,
    VerifyPlan,
)
from services.verify.servers import LOOPBACK, Cluster, OneOfEach, Servers
from services.verify.skewed import set_clock
from services.verify.versions import Version, version_in
from shared.contracts.topic_safety import STAMPS
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS, TOPICS, Topic
from shared.runtime.kafka import ensure_topics
from shared.runtime.settings import Settings, load_settings
from shared.units import SECONDS_PER_DAY

DATABASE: Final = "freshet"
START_SECONDS: Final = 240.0
"""The first start on a machine compiles the mathematics."""

STOP_SECONDS: Final = 10.0
"""A worker that is told to stop is gone within this."""

DEBOUNCE_SECONDS: Final = 1.0
FAILED_RETRY_SECONDS: Final = 3.0
LEAST_INTERVAL_SECONDS: Final = 1.0
"""Pages are crawled every few seconds here."""

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
        self.shards = PARTITIONS
        """How many there are now; the workers' settings say how many there were first."""
        self._plan = plan
        # Children die with the thread that started them: this one lasts as long as the system.
        self._server_thread = ThreadPoolExecutor(1, "servers")
        self._sockets = Path(tempfile.mkdtemp(prefix="freshet-verify-"))
        self._before: Version | None = None
        self._of_before: set[str] = set()
        """Workers that are of the version before."""
        self._databases: dict[str, str] = {}
        """Where each worker finds PostgreSQL."""
        self.servers: Servers = OneOfEach(plan, directory)
        if plan.topology == "cluster":
            self.servers = Cluster(plan, directory, self._sockets)

    @property
    def settings(self) -> Settings:
        """For clients that are not part of the system: past the failing network to PostgreSQL."""
        return load_settings(
            kafka_bootstrap_servers=self.servers.bootstrap_servers,
            database_url=self.database_url,
            instance="verify",
            **self._shared() | {"partitions": self.shards},
        )

    @property
    def database_url(self) -> str:
        """The database, past the failing network."""
        return self.servers.database_uri(DATABASE)

    @property
    def logs(self) -> Path:
        """Where every process writes its log."""
        return self.directory / "logs"

    def _shared(self) -> dict[str, Any]:
        return {
            **({"classes": self._plan.classes} if self._plan.classes else {}),
            "partitions": PARTITIONS,
            "replication_factor": self.servers.replicas,
            "kafka_session_timeout_seconds": SESSION_TIMEOUT_SECONDS,
            "request_timeout_seconds": REQUEST_TIMEOUT_SECONDS,
            "signal_debounce_seconds": DEBOUNCE_SECONDS,
            "failed_retry_seconds": FAILED_RETRY_SECONDS,
            "least_interval_seconds": LEAST_INTERVAL_SECONDS,
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
        if isinstance(self.servers, Cluster) and self.servers.disks:
            keep_mounts_apart()
        if self._plan.before is not None:
            self._before = await asyncio.to_thread(version_in, self._plan.before.absolute())
        await self.servers.open(self.network)
        await self.in_server_thread(self.servers.start)
        await self.in_server_thread(lambda: self.servers.leading.create_database(DATABASE))
        await asyncio.to_thread(migrate, self.database_url, PARTITIONS)
        await ensure_topics(self.settings, tuple(map(_with_own_times, TOPICS)))

    def copy_database(self, name: str) -> str:
        """Copy the database while nobody is connected to it; the address of the copy."""
        with psycopg.connect(self.servers.leading.uri, autocommit=True) as connection:
            statement = "CREATE DATABASE {} TEMPLATE {}"
            names = map(psycopg.sql.Identifier, (name, DATABASE))
            connection.execute(psycopg.sql.SQL(statement).format(*names))
        return self.servers.database_uri(name)

    async def start_first_workers(self, instances: Sequence[str]) -> None:
        """Start workers, of the version before if the plan has one."""
        if self._before is not None:
            self._of_before.update(instances)
        for instance in instances:
            await self.start_worker(instance)

    async def upgrade(self, choose: Callable[[Sequence[str]], str]) -> str | None:
        """End a worker of the version before, and start it as one of this version.

        Args:
            choose: one of them.

        Returns:
            which it was; None: all were of this version.
        """
        waiting = sorted(self._of_before & self.ports.keys())
        if not waiting:
            return None
        instance = choose(waiting)
        self._of_before.remove(instance)
        await self.supervisor.end(instance, STOP_SECONDS)
        await self.start_worker(instance)
        return instance

    async def start_worker(self, instance: str) -> None:
        """Start a worker, whose kind is the first part of its name."""
        if instance not in self.ports:
            self.ports[instance] = free_port()
            folder = self._sockets / instance
            if not folder.exists():
                folder.mkdir()
                found = await self.servers.open_for(self.network, instance, folder)
                self._databases[instance] = found.format(DATABASE)
        clock, kind = self._sockets / instance / "clock", instance.partition("-")[0]
        if not clock.exists():
            set_clock(clock, 0.0)
        argv = python_argv("-m", "services.verify.skewed", str(clock), "worker", kind)
        shared = {f"FRESHET_{k.upper()}": json.dumps(v) for k, v in self._shared().items()}
        if self._before is not None and instance in self._of_before:
            argv = self._before.argv(clock, kind)
            shared = self._before.environment(self._shared())
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": self.servers.proxied_brokers,
            "DATABASE_URL": self._databases[instance],
            "FRESHET_INSTANCE": instance,
            "FRESHET_HTTP_HOST": LOOPBACK,
            "FRESHET_HTTP_PORT": str(self.ports[instance]),
            **shared,
        }
        await self.supervisor.start([ChildSpec(name=instance, argv=argv, env=environment)])

    def set_clock(self, instance: str, seconds: float) -> None:
        """Set the clock of a worker's machine so far ahead of the real time."""
        set_clock(self._sockets / instance / "clock", seconds)

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
        await self.in_server_thread(self.servers.stop)
        self._server_thread.shutdown()
        shutil.rmtree(self._sockets, ignore_errors=True)
