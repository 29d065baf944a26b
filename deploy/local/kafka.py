"""The local broker as a process of its own, with the same handle as Apache Kafka's."""

import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from deploy.local.process import (
    accepts_connections,
    free_port,
    spawn,
    stop_process,
    wait_ready,
)
from deploy.local.supervisor import ChildSpec

START_SECONDS = 30.0
"""Reading a long log through at start takes a while."""


class KafkaProcess(Protocol):
    """A broker on this machine that can be started, stopped and killed."""

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, the same after every start."""

    def start(self) -> None:
        """Start the broker and wait until it answers; raises StartError."""

    def stop(self) -> None:
        """Stop the broker in order; data stays."""

    def kill(self) -> None:
        """Kill the broker as a crash would."""


def local_broker_argv(
    data_dir: Path, host: str, port: int, advertised_port: int | None = None
) -> list[str]:
    """Return the command that runs the local broker; `advertised_port` is a proxy's before it."""
    command = [sys.executable, "-m", "deploy.local.broker", "--data-dir", str(data_dir)]
    command += ["--host", host, "--port", str(port)]
    return (
        command
        if advertised_port is None
        else [*command, "--advertised-port", str(advertised_port)]
    )


def local_broker_spec(data_dir: Path, port: int, host: str = "127.0.0.1") -> ChildSpec:
    """Return how a supervisor runs the local broker."""
    return ChildSpec(
        name="broker",
        argv=local_broker_argv(data_dir, host, port),
        ready=lambda: accepts_connections(host, port),
        is_server=True,
    )


class LocalBroker:
    """The local broker under `data_dir`, on a free port unless one is given."""

    def __init__(
        self,
        data_dir: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_port: int | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._host = host
        self._port = port or free_port(host)
        self._advertised_port = advertised_port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, the same after every start."""
        return f"{self._host}:{self._port}"

    @property
    def log_path(self) -> Path:
        """Where the broker writes what it does."""
        return self._data_dir / "broker.log"

    def start(self) -> None:
        """Start the broker and wait until it answers; raises StartError."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        argv = local_broker_argv(self._data_dir, self._host, self._port, self._advertised_port)
        self._process = spawn(argv, self.log_path)
        wait_ready(
            "the local broker",
            self._process,
            lambda: accepts_connections(self._host, self._port),
            self.log_path,
            START_SECONDS,
        )

    def stop(self) -> None:
        """Stop the broker in order; data stays."""
        if self._process is not None:
            stop_process(self._process)
            self._process = None

    def kill(self) -> None:
        """Kill the broker as a crash would."""
        if self._process is not None:
            stop_process(self._process, signal.SIGKILL)
            self._process = None
