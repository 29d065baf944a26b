"""Apache Kafka from Maven Central, a node in KRaft mode, for tests against the real thing.

It takes Java 17 and Maven: `deploy/local/java.py` brings the jars.
"""

import base64
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from deploy.local.java import OPTIONS, class_archive, resolve_jars
from deploy.local.process import (
    StartError,
    accepts_connections,
    free_port,
    spawn,
    stop_process,
    wait_ready,
)

START_SECONDS = 90.0
"""A Java server on a busy machine takes its time."""
STOP_SECONDS = 20.0
"""An orderly shutdown flushes its logs and gives up leadership."""
TERMINATED = 128 + signal.SIGTERM
"""What Java says when it ended as it was asked to."""
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{advertised_port}
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={log_dir}
auto.create.topics.enable=false
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=8388608
num.network.threads=1
num.io.threads=4
background.threads=2
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
metadata.max.idle.interval.ms=0
"""
"""A broker that has nothing to do does little: as many may stand idle as tests are run at once.

Otherwise its controller writes a record of nothing every half second, which the broker then reads.
"""


def new_cluster_id() -> str:
    """An id that no other cluster has."""
    # Not with a dash at its beginning, which would be an option.
    return base64.urlsafe_b64encode(b"f" + uuid.uuid4().bytes[1:]).decode()[:22]


@dataclass(frozen=True, slots=True)
class Guard:
    """How clients must come in: a listener of their own with TLS, passwords or both."""

    protocol: Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    users: Mapping[str, str] = field(default_factory=dict)
    """Names and passwords."""
    certificate: Path | None = None
    """PEM file with the broker's private key (PKCS 8) and certificate, for TLS."""
    client_authority: Path | None = None
    """PEM file: clients must show a certificate that it has signed."""

    def settings(self, port: int, internal_port: int, controller_port: int) -> str:
        """Lines of server.properties; of two values of a setting the last one counts."""
        lines = [
            f"listeners=CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal_port},"
            f"CONTROLLER://127.0.0.1:{controller_port}",
            f"advertised.listeners=CLIENT://127.0.0.1:{port},INTERNAL://127.0.0.1:{internal_port}",
            "listener.security.protocol.map=CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,"
            f"CLIENT:{self.protocol}",
            "inter.broker.listener.name=INTERNAL",
        ]
        if self.protocol.startswith("SASL"):
            lines += [
                f"listener.name.client.sasl.enabled.mechanisms={self.mechanism}",
                f"listener.name.client.{self.mechanism.lower()}.sasl.jaas.config={self._login()}",
            ]
        if self.certificate is not None:
            lines += [
                "listener.name.client.ssl.keystore.type=PEM",
                f"listener.name.client.ssl.keystore.location={self.certificate}",
            ]
        if self.client_authority is not None:
            lines += [
                "listener.name.client.ssl.client.auth=required",
                "listener.name.client.ssl.truststore.type=PEM",
                f"listener.name.client.ssl.truststore.location={self.client_authority}",
            ]
        return "\n".join(lines) + "\n"

    def _login(self) -> str:
        if self.mechanism != "PLAIN":
            return "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        users = "".join(f' user_{name}="{password}"' for name, password in self.users.items())
        return f"org.apache.kafka.common.security.plain.PlainLoginModule required{users};"

    def format_options(self) -> list[str]:
        """Options of the storage tool: SCRAM's users are in the log's first records."""
        if self.mechanism == "PLAIN":
            return []
        return [
            part
            for name, password in self.users.items()
            for part in ("--add-scram", f"{self.mechanism}=[name={name},password={password}]")
        ]


class Membership(Protocol):
    """A node's place among others: see `apache_cluster`."""

    @property
    def cluster_id(self) -> str:
        """The same for all nodes."""

    def settings(self, port: int, internal_port: int, controller_port: int) -> str:
        """Lines of server.properties; of two values of a setting the last one counts."""


class ApacheKafka:
    """Apache Kafka under `data_dir` on free loopback ports."""

    def __init__(
        self,
        data_dir: Path,
        advertised_port: int | None = None,
        guard: Guard | None = None,
        membership: Membership | None = None,
    ) -> None:
        """Choose ports.

        Args:
            data_dir: where everything is.
            advertised_port: that of a proxy through which clients come.
            guard: how clients must come in; None: as they like.
            membership: of a cluster; None: it is alone.
        """
        self._guard = guard
        self._membership = membership
        self._internal_port = free_port()
        self._directory = data_dir.resolve()
        self._port = free_port()
        self._advertised_port = advertised_port or self._port
        self._controller_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def ports(self) -> tuple[int, int, int]:
        """For clients, for other nodes, and for the quorum of controllers."""
        return self._port, self._internal_port, self._controller_port

    @property
    def process_id(self) -> int | None:
        """The broker's process, None if it is not running as our child."""
        return self._process.pid if self._process is not None else None

    @property
    def data_dir(self) -> Path:
        """Where everything of it is."""
        return self._directory

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, the same after every start."""
        return f"127.0.0.1:{self._port}"

    @property
    def log_path(self) -> Path:
        """Where the broker writes what it does."""
        return self._directory / "broker.log"

    def start(self) -> None:
        """Start the broker and wait until it answers.

        Raises ApacheKafkaUnavailableError, StartError.
        """
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the broker without waiting: one of several answers once most of them are there.

        Raises ApacheKafkaUnavailableError.
        """
        jars = resolve_jars()
        archive = class_archive(jars, partial(_archive_classes, jars))
        options = [] if archive is None else [f"-XX:SharedArchiveFile={archive}"]
        self.launch_with(jars, options)

    def launch_with(self, jars: Path, options: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the process, and format its storage before, with options of Java."""
        java = ["java", *OPTIONS, *options, "-cp", f"{jars}/*"]
        settings = self._directory / "server.properties"
        if not settings.exists():
            self._format(java, settings)
        self._process = spawn([*java, "kafka.Kafka", str(settings)], self.log_path)
        return self._process

    def wait(self) -> None:
        """Wait until the broker that was launched answers; raises StartError."""
        if self._process is None:
            raise StartError("Apache Kafka was not launched")
        wait_ready(
            "Apache Kafka",
            self._process,
            lambda: accepts_connections("127.0.0.1", self._port),
            self.log_path,
            START_SECONDS,
        )

    def stop(self) -> None:
        """Stop the broker in order; data stays."""
        if self._process is not None:
            stop_process(self._process, signal.SIGTERM, STOP_SECONDS)
            self._process = None

    def kill(self) -> None:
        """Kill the broker as a crash would."""
        if self._process is not None:
            stop_process(self._process, signal.SIGKILL)
            self._process = None

    def _format(self, java: list[str], settings: Path) -> None:
        """Write the settings and format the storage, as KRaft demands before the first start."""
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = settings.with_suffix(".new")
        text = _SETTINGS.format(
            port=self._port,
            advertised_port=self._advertised_port,
            controller_port=self._controller_port,
            log_dir=self._directory / "data",
        )
        options: list[str] = []
        if self._guard is not None:
            text += self._guard.settings(self._port, self._internal_port, self._controller_port)
            options = self._guard.format_options()
        cluster_id = new_cluster_id()
        if self._membership is not None:
            text += self._membership.settings(*self.ports)
            cluster_id = self._membership.cluster_id
        unfinished.write_text(text)
        tool = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", cluster_id]
        subprocess.run(  # noqa: S603
            [*tool, "--config", str(unfinished), *options],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        unfinished.rename(settings)


def _archive_classes(jars: Path, option: str) -> None:
    """Run a broker for a moment with the option that writes the archive as it ends."""
    with tempfile.TemporaryDirectory(prefix="freshet-classes-") as directory:
        broker = ApacheKafka(Path(directory))
        process = broker.launch_with(jars, [option])
        broker.wait()
        process.terminate()
        try:
            code = process.wait(START_SECONDS)
        except subprocess.TimeoutExpired:
            stop_process(process, signal.SIGKILL)
            raise StartError("Apache Kafka did not end") from None
    if code != TERMINATED:
        raise StartError(f"Apache Kafka ended with {code}")
