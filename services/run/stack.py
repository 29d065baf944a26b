"""The processes of a run: servers, workers and the world, and what each is told."""

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

from deploy.local.apache import ApacheKafka
from deploy.local.kafka import local_broker_spec
from deploy.local.postgres import EmbeddedPostgres
from deploy.local.process import free_port
from deploy.local.supervisor import ChildSpec, Supervisor, python_argv
from services.run.errors import RunRefused
from services.run.options import CLOCK_ORIGIN, DEFAULT_PARTITIONS, RunOptions
from shared.runtime.secret_files import SUFFIX
from shared.runtime.settings import Settings, load_settings
from shared.units import SECONDS_PER_DAY

LOOPBACK = "127.0.0.1"
BROKER_VARIABLE = "KAFKA_BOOTSTRAP_SERVERS"
DATABASE_VARIABLE = "DATABASE_URL"
DATABASE_VARIABLES = (DATABASE_VARIABLE, f"{DATABASE_VARIABLE}{SUFFIX}")


class Stack:
    """Everything that runs, where it is, and where it writes."""

    def __init__(self, options: RunOptions) -> None:
        self.options = options
        simulated = options.world != "none"
        self.directory = (options.data_dir / ("run" if simulated else "system")).absolute()
        self.supervisor = Supervisor(self.directory)
        self.gate = self.directory / "clock.gate" if simulated else None
        self.plan_file = self.directory / "world.json"
        self._begins_empty = simulated or options.begins_empty
        self.environment_file = self.directory / "environment"
        """For `. FILE` in a shell: other commands then talk to this run. It is there while the run
        is: the next one has other ports."""
        self.status_file = self.directory / "status.json"
        self.result_file = self.directory / "result.json"
        self.ports: dict[str, int] = {}
        """HTTP port of each worker, by the child's name."""
        self.own_broker = BROKER_VARIABLE not in os.environ
        self.own_database = os.environ.keys().isdisjoint(DATABASE_VARIABLES)
        self._postgres = EmbeddedPostgres(self.directory / "postgres")
        self._apache: ApacheKafka | None = None
        self._settings: Settings | None = None

    @property
    def settings(self) -> Settings:
        """The settings that all processes of the run share.

        Raises:
            RuntimeError: before the servers are started.
        """
        if self._settings is None:
            raise RuntimeError("the servers are not started yet")
        return self._settings

    @property
    def borrowed(self) -> list[str]:
        """The variables that name servers which are there without the run."""
        return [name for name in (BROKER_VARIABLE, *DATABASE_VARIABLES) if name in os.environ]

    @property
    def logs(self) -> Path:
        """Where every process writes its log."""
        return self.directory / "logs"

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out of the data directory, and begin with an empty one if that is meant.

        Raises:
            RunRefused: another run uses the directory.
        """
        self.options.data_dir.mkdir(parents=True, exist_ok=True)
        with (self.options.data_dir / "run.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise RunRefused(
                    f"another run uses {self.options.data_dir}: stop it, or choose another "
                    "--data-dir"
                ) from error
            if self._begins_empty and self.directory.exists():
                if self.own_database and (self.directory / "postgres").exists():
                    self._postgres.prepare()  # ends a server that a killed run left behind
                shutil.rmtree(self.directory)
            self.directory.mkdir(parents=True, exist_ok=True)
            # A run that was killed left it behind, and its ports are nobody's now.
            self.environment_file.unlink(missing_ok=True)
            yield

    async def start_servers(self) -> None:
        """Start PostgreSQL and the broker, where the environment names none.

        Raises:
            StartError: one does not come up.
        """
        broker = database = None
        if self.own_database:
            self._postgres.prepare()
            await self.supervisor.start([self._postgres.child_spec()])
            database = self._postgres.create_database("freshet")
        if self.own_broker:
            broker = await self._start_broker()
        self._settings = self._make_settings(broker, database)

    def workers(self, optional: Sequence[str] = ()) -> list[ChildSpec]:
        """The workers' processes; they start together, and wait for each other by themselves.

        Args:
            optional: names of workers to be run beside the four.
        """
        names = ["coordinator", "estimator", "ingester", *optional]
        count = self.options.schedulers
        names += ["scheduler"] if count == 1 else [f"scheduler-{n + 1}" for n in range(count)]
        # All of them first: the coordinator is told where the schedulers are.
        self.ports |= {name: free_port() for name in names}
        return [
            ChildSpec(
                name=name,
                argv=python_argv("-m", "services.cli.main", "worker", name.partition("-")[0]),
                env=self._environment(name),
            )
            for name in names
        ]

    def world(self) -> ChildSpec:
        """The simulated web's process; it is not restarted, because its state dies with it."""
        self.ports["world"] = free_port()
        return ChildSpec(
            name="world",
            argv=python_argv("-m", "services.world", str(self.plan_file)),
            env=self._environment("world"),
            restart=False,
        )

    def write_environment(self) -> None:
        """Leave a file that lets other commands, and crawlers, talk to this run."""
        variables = self._environment("coordinator")
        for name in ("FRESHET_INSTANCE", "FRESHET_HTTP_HOST", "FRESHET_HTTP_PORT"):
            del variables[name]
        variables["COORDINATOR_URL"] = f"http://{LOOPBACK}:{self.ports['coordinator']}"
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in variables.items()]
        self.environment_file.touch(mode=0o600)
        self.environment_file.write_text("".join(lines))

    def end_world(self) -> None:
        """Ask the world to write its result and end."""
        for child in self.supervisor.children():
            if child.name == "world" and child.pid is not None:
                os.kill(child.pid, signal.SIGTERM)

    async def stop(self) -> None:
        """Stop everything within five seconds."""
        self.environment_file.unlink(missing_ok=True)
        await self.supervisor.stop()
        if self._apache is not None:
            # Its data is thrown away, and an orderly end takes longer than anyone waits.
            self._apache.kill()
        if self.own_database:
            self._postgres.stop()

    async def _start_broker(self) -> str:
        directory = self.directory / "kafka"
        if self.options.broker == "apache":
            self._apache = ApacheKafka(directory)
            self._apache.start()
            return self._apache.bootstrap_servers
        port = free_port()
        await self.supervisor.start([local_broker_spec(directory, port, LOOPBACK)])
        return f"{LOOPBACK}:{port}"

    def _make_settings(self, broker: str | None, database: str | None) -> Settings:
        overrides: dict[str, object] = {}
        if self.options.policy is not None:
            overrides["policy"] = self.options.policy
        if broker is not None:
            overrides["kafka_bootstrap_servers"] = broker
        if database is not None:
            overrides["database_url"] = database
        if self.gate is not None:
            overrides |= {
                "clock_gate": self.gate,
                "clock_origin": CLOCK_ORIGIN,
                "clock_speed": self.options.speed * SECONDS_PER_DAY,
            }
        plain = load_settings(**overrides)
        given = plain.model_fields_set
        if self.options.partitions is not None:
            overrides["partitions"] = self.options.partitions
        elif "partitions" not in given:
            overrides["partitions"] = DEFAULT_PARTITIONS
        if self.gate is not None and broker is None and "topic_prefix" not in given:
            # Somebody's broker: the run keeps to topics of its own.
            overrides["topic_prefix"] = f"run-{os.getpid()}-{os.urandom(3).hex()}-"
        return load_settings(**overrides)

    def _environment(self, name: str) -> dict[str, str]:
        """What a child is told, beside what the user's own environment says."""
        settings = self.settings
        schedulers = [port for name, port in self.ports.items() if name.startswith("scheduler")]
        environment = {
            BROKER_VARIABLE: settings.kafka_bootstrap_servers,
            DATABASE_VARIABLE: settings.database_url.get_secret_value(),
            "SCHEDULER_URLS": " ".join(f"http://{LOOPBACK}:{port}" for port in schedulers),
            "FRESHET_PARTITIONS": str(settings.partitions),
            "FRESHET_TOPIC_PREFIX": settings.topic_prefix,
            "FRESHET_POLICY": settings.policy,
            "FRESHET_INSTANCE": f"{name}@{settings.instance}",
            "FRESHET_HTTP_HOST": LOOPBACK,
            "FRESHET_HTTP_PORT": str(self.ports[name]),
        }
        if self.gate is not None:
            environment |= {
                "FRESHET_CLOCK_GATE": str(self.gate),
                "FRESHET_CLOCK_ORIGIN": repr(settings.clock_origin),
                "FRESHET_CLOCK_SPEED": repr(settings.clock_speed),
            }
        return environment
