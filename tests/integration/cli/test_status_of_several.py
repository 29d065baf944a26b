"""`freshet status` where one of several databases is not what the settings say: it is named."""

import json
import uuid

import psycopg
import pytest
from click.testing import CliRunner

from migrations.upgrade import migrate
from services.cli.main import main
from shared.contracts.databases import Databases

pytestmark = pytest.mark.postgres

SHARDS = 4


@pytest.fixture
def urls(postgres_server):
    """Four databases: two of the shards 0 and 1 with one of 2 and 3 between them, an empty one."""
    names = [f"test_{uuid.uuid4().hex}" for _ in range(4)]
    made = [postgres_server.create_database(name) for name in names]
    for home in (made[0], made[2]):
        for one in Databases.parse(f"0-1={home},2-3={made[1]}").each:
            migrate(one.url, SHARDS, one.held)
    yield made
    with psycopg.connect(postgres_server.uri, autocommit=True) as connection:
        for name in names:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def status(monkeypatch, tmp_path):
    """A function: two addresses → the command's answer."""
    monkeypatch.chdir(tmp_path)

    def run(first, second, *arguments):
        monkeypatch.setenv("FRESHET_PARTITIONS", str(SHARDS))
        monkeypatch.setenv("FRESHET_DATABASES", f"0-1={first},2-3={second}")
        nobody = ["--coordinator", "http://127.0.0.1:1"]
        return CliRunner().invoke(main, ["status", *nobody, *arguments])

    return run


def away(result, exit_code=1):
    assert result.exit_code == exit_code, result.output
    return [one["away"] for one in json.loads(result.stdout)["store"]["databases"]]


def test_one_without_tables_is_left_out_and_named(status, urls):
    home, other, _, empty = urls
    assert away(status(home, other, "--json"), exit_code=0) == [None, None]
    assert "no Freshet tables yet: run `freshet migrate`" in away(status(home, empty, "--json"))[1]
    assert "no Freshet tables" in away(status(empty, other, "--json"))[0]
    assert "shards 2-3/4: away: the database has no Freshet tables" in status(home, empty).stdout


def test_one_with_other_shards_is_left_out_and_named(status, urls):
    home, other, twin, _ = urls
    assert "has the shards 0-1/4, but by the settings" in away(status(home, twin, "--json"))[1]
    swapped = status(other, home)
    assert swapped.exit_code == 2
    assert "has the shards 2-3/4, but by the settings it has the shards 0-1/4" in swapped.output
