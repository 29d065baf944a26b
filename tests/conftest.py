"""Fixtures for everything that needs a broker or a database: real servers, one each per session.

With pytest-xdist every worker has its own. Nothing of it outlives the session.
"""

import os
import shutil
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import psycopg
import pytest
from apache import need_apache_kafka
from other_postgres import other_programs
from scratch import MEMORY, ROOM_BYTES, where_files_cost_least

from deploy.local.apache import ApacheKafka
from deploy.local.kafka import KafkaProcess, LocalBroker
from deploy.local.postgres import EmbeddedPostgres

if TYPE_CHECKING:
    from shared.runtime.publisher import Publisher
    from shared.runtime.settings import Settings

# Servers are forked from here while threads of gRPC run: its handlers would abort the child.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"

# A machine that has something else to do for a second is no fault of ours.
hypothesis.settings.register_profile(
    "freshet", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("freshet")

pytest_plugins = ("arranging", "examples", "simulated_seeds", "pytester")

BROKERS = ("local", "apache")


@contextmanager
def _running(broker: KafkaProcess) -> Iterator[KafkaProcess]:
    broker.start()
    try:
        yield broker
    finally:
        # Nobody wants its data, and Apache Kafka takes half a minute to leave it in order.
        broker.kill()


def _apache_kafka(data_dir: Path) -> ApacheKafka:
    need_apache_kafka()
    return ApacheKafka(data_dir)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A test that starts a server without the mark for it fails: a pure run has no servers."""

    def refuse(server: object) -> None:
        pytest.fail(f"this test starts {type(server).__name__}: mark it, as tests/README.md says")

    servers = {"kafka": (LocalBroker, ApacheKafka), "postgres": (EmbeddedPostgres,)}
    with pytest.MonkeyPatch.context() as patch:
        for mark, kinds in servers.items():
            for kind in kinds if item.get_closest_marker(mark) is None else ():
                patch.setattr(kind, "start", refuse)
        return (yield)


@pytest.fixture(scope="session")
def scratch_dir() -> Iterator[Path]:
    """A folder with a short path that other accounts can pass through, as PostgreSQL needs it."""
    place = where_files_cost_least(MEMORY, ROOM_BYTES)
    with tempfile.TemporaryDirectory(prefix="freshet-test-", dir=place) as directory:
        Path(directory).chmod(0o711)
        yield Path(directory)


@pytest.fixture
def system_dir(scratch_dir: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder for a system of the test's own; afterwards its logs are in `tmp_path`."""
    directory = scratch_dir / uuid.uuid4().hex[:8]
    directory.mkdir(mode=0o711)
    yield directory
    for path in (*directory.glob("*.*"), *directory.rglob("[!0-9]*.log")):
        if path.is_file():
            kept = tmp_path / path.relative_to(directory)
            kept.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, kept)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def local_broker(scratch_dir: Path) -> Iterator[KafkaProcess]:
    """The local broker, shared by the session's tests: use topics and groups of your own."""
    with _running(LocalBroker(scratch_dir / "local-broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def shared_apache_kafka(scratch_dir: Path) -> Iterator[KafkaProcess]:
    """What `apache_kafka` and `broker` give."""
    with _running(_apache_kafka(scratch_dir / "apache-kafka")) as broker:
        yield broker


@pytest.fixture(scope="session", params=["apache"])
def apache_kafka(shared_apache_kafka: KafkaProcess) -> KafkaProcess:
    """Apache Kafka, shared by the session's tests: use topics and groups of your own."""
    # A parameter, so that the tests' names say so (`arranging`).
    return shared_apache_kafka


@pytest.fixture(scope="session", params=BROKERS)
def broker(request: pytest.FixtureRequest) -> KafkaProcess:
    """Each broker in turn, shared by the session's tests: use topics and groups of your own."""
    return request.getfixturevalue(
        {"local": "local_broker", "apache": "shared_apache_kafka"}[request.param]
    )


@pytest.fixture(params=BROKERS)
def own_broker(request: pytest.FixtureRequest, scratch_dir: Path) -> Iterator[KafkaProcess]:
    """Each broker in turn, for one test alone, which may kill it and start it again."""
    data_dir = scratch_dir / f"own-{uuid.uuid4().hex}"
    make: dict[str, Callable[[Path], KafkaProcess]] = {
        "local": LocalBroker,
        "apache": _apache_kafka,
    }
    with _running(make[request.param](data_dir)) as broker:
        yield broker


@pytest.fixture
def own_postgres(scratch_dir: Path) -> Iterator[EmbeddedPostgres]:
    """A PostgreSQL for one test alone, which may stop it and start it again."""
    server = EmbeddedPostgres(scratch_dir / f"pg-{uuid.uuid4().hex[:8]}")
    server.start()
    yield server
    server.stop()


@pytest.fixture
async def publisher(settings: "Settings") -> "AsyncIterator[Publisher]":
    """A started publisher, by the `settings` that a file of tests or its folder has."""
    from shared.runtime.publisher import Publisher

    made = Publisher(settings)
    await made.start()
    yield made
    await made.stop()


@pytest.fixture(scope="session")
def postgres_server(scratch_dir: Path) -> Iterator[EmbeddedPostgres]:
    """An embedded PostgreSQL server, shared by the session's tests, which drop their databases."""
    # Of a killed server the machine keeps what was written; only one that loses power would not.
    # Otherwise each database that is dropped waits for the disk, for as long as most tests take.
    # And its folder may be in memory: of its log it is to keep little.
    settings = {"fsync": "off", "min_wal_size": "80MB", "max_wal_size": "1GB"}
    server = EmbeddedPostgres(scratch_dir / "postgres", settings, other_programs())
    server.start()
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def postgres_uri(postgres_server: EmbeddedPostgres) -> str:
    """Address of the server's default database."""
    return postgres_server.uri


Copy = Callable[[str], str]
"""Makes a database that is a copy of another, by its name: its address."""


@pytest.fixture(scope="session")
def commanding() -> Iterator[Callable[[EmbeddedPostgres], psycopg.Connection]]:
    """A connection to a server's default database, which stays: each costs what a test may."""
    with ExitStack() as stack:

        @cache
        def connection(server: EmbeddedPostgres) -> psycopg.Connection:
            return stack.enter_context(closing(psycopg.connect(server.uri, autocommit=True)))

        yield connection


@pytest.fixture
def copied_database(
    postgres_server: EmbeddedPostgres,
    commanding: Callable[[EmbeddedPostgres], psycopg.Connection],
) -> Iterator[Copy]:
    """Makes databases for one test, which are dropped after it."""
    names, command = [], commanding(postgres_server).execute

    def copy(template: str) -> str:
        name = f"test_{uuid.uuid4().hex}"
        # Files are copied in half of what it costs to write them to the log as well.
        command(f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        names.append(name)
        return postgres_server.database_uri(name)

    yield copy
    for name in names:
        command(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def database_url(copied_database: Copy) -> str:
    """Address of an empty database for one test."""
    return copied_database("template1")


@pytest.fixture(scope="session")
def migrated_template(postgres_server: EmbeddedPostgres) -> Callable[[int], str]:
    """Name of a database that is migrated for so many shards, and is only copied from then on."""

    # Here, as a pure run does without: what migrates takes as long to load as all of pytest.
    from migrations.upgrade import migrate

    @cache
    def template(shards: int) -> str:
        name = f"migrated_{shards}"
        migrate(postgres_server.create_database(name), shards)
        return name

    return template


@pytest.fixture
def migrated_database(
    copied_database: Copy, migrated_template: Callable[[int], str]
) -> Callable[[int], str]:
    """Makes migrated databases for one test: copies, which cost less than migrating does."""
    return lambda shards: copied_database(migrated_template(shards))


@pytest.fixture
def migrated_url(migrated_database: Callable[[int], str]) -> str:
    """Address of a database of the test's own that is migrated for four shards."""
    return migrated_database(4)
