"""The file by which a shell talks to a run is there for as long as the run is."""

import asyncio
import socket

import pytest

from deploy.local.postgres import EmbeddedPostgres
from services.run.errors import RunRefused
from services.run.options import RunOptions
from services.run.preparing import require_no_former_run
from services.run.session import Session
from services.run.stack import Stack
from shared.runtime.settings import Settings


@pytest.fixture
def no_servers(monkeypatch):
    for name in ("DATABASE_URL", "KAFKA_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(name, raising=False)


def written(stack):
    """The stack's file, as `freshet run` writes it."""
    stack._settings = Settings(partitions=4)
    stack.workers()
    stack.write_environment()
    return stack.environment_file


def test_the_file_of_a_run_that_was_killed_is_gone_when_the_next_one_starts(no_servers, tmp_path):
    with (killed := Stack(RunOptions("none", tmp_path))).locked():
        file = written(killed)
    assert file.exists()
    with Stack(RunOptions("none", tmp_path)).locked():
        assert not file.exists()


@pytest.mark.parametrize("world", ["none", "generated"])
async def test_the_file_goes_when_the_run_stops(no_servers, tmp_path, world):
    stack = Stack(RunOptions(world, tmp_path))
    with stack.locked():
        file = written(stack)
        await stack.stop()
        assert not file.exists()


def of_a_run(folder):
    """The settings of a shell that has read a run's file, and the folder of the server's socket."""
    server = EmbeddedPostgres(Stack(RunOptions("none", folder)).directory / "postgres")
    server.socket_directory.mkdir(parents=True)
    return Settings(database_url=server.database_uri("freshet")), server.socket_directory


def test_a_shell_of_a_run_that_is_over_is_told_so_and_nothing_is_touched(
    monkeypatch, no_servers, system_dir
):
    settings, sockets = of_a_run(system_dir)
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(sockets / ".s.PGSQL.5432"))
    monkeypatch.setenv("DATABASE_URL", settings.database_url.get_secret_value())
    session = Session(RunOptions("generated", system_dir / "new"), print, lambda _done, _of: None)
    with pytest.raises(RunRefused, match=r"run that is over: .*another shell"):
        asyncio.run(session.run(lambda _session: None))
    assert not (system_dir / "new").exists()


def test_so_is_one_whose_folder_has_too_long_a_path_for_a_socket(tmp_path):
    deep = tmp_path.joinpath(*["a-long-name"] * 8)
    settings, sockets = of_a_run(deep)
    assert deep not in sockets.parents
    sockets.rmdir()
    with pytest.raises(RunRefused, match="run that is over"):
        require_no_former_run(settings)


def test_a_run_that_is_under_way_may_be_borrowed_from(system_dir):
    settings, sockets = of_a_run(system_dir)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(sockets / ".s.PGSQL.5432"))
        server.listen()
        require_no_former_run(settings)


@pytest.mark.parametrize(
    "url",
    [
        *("", "host=db dbname=freshet", "postgresql://freshet@db/freshet?sslmode=verify-full"),
        "postgresql:///freshet?host=/var/run/postgresql",
        "postgresql:///freshet?host=/srv/socket",
    ],
)
def test_a_database_of_no_run_is_looked_at_later(url):
    require_no_former_run(Settings(database_url=url))
