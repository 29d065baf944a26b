"""Who needs a newer schema than the database has says so at the start, whatever it would miss."""

from pathlib import Path

import psycopg
import pytest
from alembic.script import ScriptDirectory

import migrations
from services.scheduler.flow.splitting import begin_anew
from shared.store.connection import connect
from shared.store.deployment import NEEDED_REVISION, StoreMismatch, check_deployment
from shared.store.questions import Questions

HEAD = ScriptDirectory(str(Path(migrations.__file__).parent)).get_current_head()


def start_estimator(url):
    with connect(url, "test") as connection:
        check_deployment(connection, 4)


def start_scheduler(url):
    begin_anew(url, {0})


STARTS = pytest.mark.parametrize("start", [start_estimator, start_scheduler])


def set_revision(url, number):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE alembic_version SET version_num = %s", (number,))


def test_the_newest_schema_is_needed():
    assert NEEDED_REVISION == HEAD


@STARTS
def test_the_schema_that_it_knows_and_later_ones_are_taken(start, migrated_url):
    start(migrated_url)
    set_revision(migrated_url, "9999")
    start(migrated_url)


@STARTS
def test_an_older_one_is_refused_with_what_to_do(start, migrated_url):
    set_revision(migrated_url, "0026")
    with pytest.raises(StoreMismatch, match=rf"freshet migrate.*0026, and {HEAD} is needed"):
        start(migrated_url)


@STARTS
def test_a_database_without_tables_is_refused(start, database_url):
    with pytest.raises(StoreMismatch, match="no Freshet tables yet"):
        start(database_url)


def test_who_may_not_read_the_revision_starts(migrated_url):
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("REVOKE SELECT ON alembic_version FROM freshet_scheduler")
    with connect(migrated_url, "test") as connection:
        connection.execute("SET ROLE freshet_scheduler")
        check_deployment(connection, 4)


@pytest.mark.parametrize(
    ("revision", "said"),
    [("0026", rf"freshet migrate.*0026, and {HEAD} is needed"), (None, "no Freshet tables yet")],
)
async def test_who_asks_now_and_then_is_told_the_same_and_asks_again(migrated_url, revision, said):
    """The poller, the receiver, the frontier and the discoverer go on without the database."""
    questions = Questions(migrated_url, "test")
    wanted = "SELECT count(*) FROM pages"
    try:
        if revision is None:
            with psycopg.connect(migrated_url) as connection:
                connection.execute("DELETE FROM alembic_version")
        else:
            set_revision(migrated_url, revision)
        with pytest.raises(psycopg.OperationalError, match=said):
            await questions.ask(lambda connection: connection.execute(wanted).fetchone())
        with psycopg.connect(migrated_url) as connection:
            connection.execute("DELETE FROM alembic_version")
            connection.execute("INSERT INTO alembic_version VALUES (%s)", (HEAD,))
        found = await questions.ask(lambda connection: connection.execute(wanted).fetchone())
        assert found == (0,)
    finally:
        questions.stop()
