"""A run looks at the database that it is told of before it alters anything there."""

import psycopg
import pytest
from alembic import command
from page_batches import page_batch
from pydantic import SecretStr

from migrations.engine import alchemy_engine
from migrations.upgrade import alembic_config, migrate
from services.run import preparing
from services.run.errors import RunRefused
from services.run.preparing import prepare_system
from shared.runtime.settings import Settings
from shared.store.deployment import NEEDED_REVISION
from shared.store.imports import import_pages

SHARDS = 4


@pytest.fixture
def prepare(monkeypatch):
    """Prepares a run on a database, without topics."""

    async def no_topics(_settings):
        return None

    monkeypatch.setattr(preparing, "ensure_topics", no_topics)

    async def call(url, *, own_database=False, must_be_empty=True):
        settings = Settings(database_url=SecretStr(url), partitions=SHARDS)
        await prepare_system(settings, own_database=own_database, must_be_empty=must_be_empty)

    return call


def write(url, statement):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement)


def schema_of(url):
    """Its revision, and how many tables there are."""
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT count(*) FROM pg_class WHERE relkind IN ('r', 'p')")
        revision = connection.execute("SELECT version_num FROM alembic_version")
        return revision.fetchone()[0], tables.fetchone()[0]


def of_before(url):
    """Let a database be as an earlier version left it."""
    with alchemy_engine(url).begin() as connection:
        command.downgrade(alembic_config(connection), "-1")


@pytest.mark.parametrize("must_be_empty", [True, False], ids=["simulated", "real"])
async def test_a_database_of_an_older_version_is_left_as_it_is(
    prepare, migrated_url, must_be_empty
):
    of_before(migrated_url)
    before = schema_of(migrated_url)
    assert before[0] < NEEDED_REVISION
    with pytest.raises(RunRefused, match="`freshet migrate`"):
        await prepare(migrated_url, must_be_empty=must_be_empty)
    assert schema_of(migrated_url) == before


async def test_a_database_that_the_run_made_itself_is_migrated(prepare, migrated_url):
    of_before(migrated_url)
    await prepare(migrated_url, own_database=True)
    assert schema_of(migrated_url)[0] == NEEDED_REVISION


@pytest.mark.parametrize("left", [["pages"], ["hosts"]], ids=str)
async def test_a_simulation_mixes_with_nothing_that_is_there(prepare, migrated_url, left):
    import_pages(migrated_url, SHARDS, [page_batch(["https://a.example/"])], now=1.7e9)
    for table in {"pages", "hosts"} - set(left):
        write(migrated_url, f"DELETE FROM {table}")
    write(migrated_url, "REVOKE SELECT ON hosts FROM freshet_scheduler")
    with pytest.raises(RunRefused, match="--world none"):
        await prepare(migrated_url)
    with psycopg.connect(migrated_url) as connection:
        query = "SELECT has_table_privilege('freshet_scheduler', 'hosts', 'SELECT')"
        assert connection.execute(query).fetchone() == (False,), "it was migrated all the same"
    await prepare(migrated_url, must_be_empty=False)


async def test_an_empty_database_gets_tables_and_one_that_has_them_goes_on(prepare, database_url):
    await prepare(database_url)
    found = schema_of(database_url)
    assert found[0] == NEEDED_REVISION
    migrate(database_url, SHARDS)
    await prepare(database_url)
    assert schema_of(database_url) == found
