"""A user who may do too little, and a database that a newer version has migrated: what to do."""

import uuid

import psycopg
import pytest
from click.testing import CliRunner

from services.cli.doctor.database import look_at_database
from services.cli.main import main
from shared.contracts.databases import Databases

SHARDS = 4


@pytest.fixture
def run(monkeypatch, tmp_path):
    """A function that runs a command on a database."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pages.csv").write_text("url,importance\nhttps://a.example/1,1\n")
    monkeypatch.setenv("FRESHET_PARTITIONS", str(SHARDS))

    def invoke(arguments, url):
        monkeypatch.setenv("DATABASE_URL", url)
        return CliRunner().invoke(main, arguments)

    return invoke


def refusal(result):
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    [said] = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    return said


@pytest.fixture
def stranger(migrated_url):
    """The database's URL with a user who has no role of Freshet's."""
    name = f"stranger_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        yield migrated_url.replace("postgres@", f"{name}@")
        connection.execute(f"DROP ROLE {name}")


@pytest.mark.parametrize(
    ("arguments", "who"),
    [
        (["explain", "https://a.example/1"], "freshet_readonly"),
        (["changes"], "freshet_readonly"),
        (["sites", "remove", "https://a.example/"], "freshet_operator"),
        (["subscriptions", "add", "https://a.example/"], "freshet_operator"),
        (["migrate"], "the user who owns the tables"),
    ],
    ids=str,
)
def test_a_user_without_the_right_is_told_who_has_it(run, stranger, arguments, who):
    with psycopg.connect(stranger) as connection:
        user = connection.info.user
    with psycopg.connect(stranger.replace(f"{user}@", "postgres@"), autocommit=True) as connection:
        if who == "freshet_operator":
            # Whoever may read is about to write.
            connection.execute(f"GRANT freshet_readonly TO {user}")
    said = refusal(run(arguments, stranger))
    assert "permission denied" in said
    assert who in said
    assert "DATABASE_URL" in said


def test_what_a_newer_version_has_migrated_is_left_to_it(run, migrated_url):
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    said = refusal(run(["migrate"], migrated_url))
    assert "of a newer version (its schema is 9999" in said
    databases = Databases.alone(migrated_url)
    found = look_at_database(databases.home, databases, SHARDS)
    [schema] = [finding for finding in found if finding.about == "schema"]
    assert schema.level == "risk"
    assert schema.remedy == "workers of the version that migrated it, or newer ones"
