"""Apache Kafka from Maven Central, one node in KRaft mode, for tests against the real thing.

It takes Java 17 and Maven; the jars are fetched once, into FRESHET_CACHE or ~/.cache/freshet.
"""

import base64
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import structlog

from deploy.local.process import (
    accepts_connections,
    free_port,
    spawn,
    stop_process,
    wait_ready,
)

POM = Path(__file__).parents[1] / "apache-kafka" / "pom.xml"
"""Which jars."""
START_SECONDS = 90.0
"""A Java server on a busy machine takes its time."""
STOP_SECONDS = 20.0
"""An orderly shutdown flushes its logs and gives up leadership."""
RESOLVE_SECONDS = 900.0
"""The jars are 100 MB."""
_JAVA_OPTIONS = (
    "-Xms64m",
    "-Xmx384m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Xshare:auto",
    "-Dorg.apache.logging.log4j.level=WARN",
)
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
num.network.threads=2
num.io.threads=4
background.threads=2
broker.heartbeat.interval.ms=500
broker.session.timeout.ms=2000
"""

log = structlog.get_logger(__name__)


class ApacheKafkaUnavailableError(RuntimeError):
    """Java or Maven is missing, or the jars could not be fetched."""


def why_unavailable() -> str | None:
    """Return what is missing for Apache Kafka on this machine, None if nothing is."""
    missing = [program for program in ("java", "mvn") if shutil.which(program) is None]
    return f"not installed: {', '.join(missing)}" if missing else None


def resolve_jars() -> Path:
    """Return the folder with Apache Kafka's jars, fetched from Maven Central if need be.

    Safe to call from several processes at once. Raises ApacheKafkaUnavailableError.
    """
    reason = why_unavailable()
    if reason is not None:
        raise ApacheKafkaUnavailableError(f"Apache Kafka needs Java and Maven; {reason}")
    cache = Path(os.environ.get("FRESHET_CACHE") or Path.home() / ".cache" / "freshet")
    cache.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(POM.read_bytes()).hexdigest()[:12]
    jars = cache / f"apache-kafka-{digest}"
    with (cache / "apache-kafka.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jars.is_dir():
            _fetch(jars)
    return jars


def _fetch(jars: Path) -> None:
    log.info("fetching Apache Kafka from Maven Central", folder=str(jars))
    unfinished = jars.with_suffix(".new")
    shutil.rmtree(unfinished, ignore_errors=True)
    command = ["mvn", "--batch-mode", "--quiet", "--file", str(POM), "dependency:copy-dependencies"]
    try:
        subprocess.run(  # noqa: S603
            [*command, f"-DoutputDirectory={unfinished}", "-DincludeScope=runtime"],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=RESOLVE_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        output = (error.stdout or b"").decode(errors="replace")
        raise ApacheKafkaUnavailableError(
            f"Maven could not fetch Apache Kafka; is Maven Central reachable?\n{output}"
        ) from error
    unfinished.rename(jars)


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


class ApacheKafka:
    """Apache Kafka under `data_dir` on free loopback ports."""

    def __init__(
        self, data_dir: Path, advertised_port: int | None = None, guard: Guard | None = None
    ) -> None:
        """Choose ports.

        Args:
            data_dir: where everything is.
            advertised_port: that of a proxy through which clients come.
            guard: how clients must come in; None: as they like.
        """
        self._guard = guard
        self._internal_port = free_port()
        self._directory = data_dir.resolve()
        self._port = free_port()
        self._advertised_port = advertised_port or self._port
        self._controller_port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

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
        java = self._java()
        settings = self._directory / "server.properties"
        if not settings.exists():
            self._format(java, settings)
        self._process = spawn([*java, "kafka.Kafka", str(settings)], self.log_path)
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

    def _java(self) -> list[str]:
        return ["java", *_JAVA_OPTIONS, "-cp", f"{resolve_jars()}/*"]

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
        unfinished.write_text(text)
        cluster_id = base64.urlsafe_b64encode(b"f" + uuid.uuid4().bytes[1:]).decode()[:22]
        tool = [*java, "kafka.tools.StorageTool", "format", "--cluster-id", cluster_id]
        subprocess.run(  # noqa: S603
            [*tool, "--config", str(unfinished), *options],
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
        unfinished.rename(settings)
