"""Whatever an operator's command writes, a user with the operators' role may write.

What alters tables, a migration or a growth, is for their owner alone.
"""

import asyncio
import json
import time
import uuid

import psycopg
import pytest
from click.testing import CliRunner
from workers import settings_for

from services.cli.main import main
from shared.contracts.identity import identify
from shared.runtime.kafka import ensure_topics
from shared.store.connection import connect
from shared.store.erased_traces import delete_observations, forget_watched, watched_of_host
from shared.store.stream_topics import read_topics, set_topic
from shared.store.subscriptions import add_subscription, list_subscriptions
from shared.store.watched import NewSource, Site, add_site, add_sources, list_sources, remove_site
from shared.store.writer import ensure_observation_partition

pytestmark = pytest.mark.postgres

SHARDS = 4
HOST = "host-1.example"
URL = f"https://{HOST}/"
OPERATOR = "freshet_operator"


@pytest.fixture
def operator(logins):
    """The database's address as an operator."""
    return logins[OPERATOR]


@pytest.fixture
def freshet(local_broker, operator, monkeypatch, tmp_path):
    """Runs a command as an operator, and gives what it answers."""
    prefix = f"operators-{uuid.uuid4().hex[:8]}"
    asyncio.run(
        ensure_topics(settings_for(local_broker.bootstrap_servers, prefix, partitions=SHARDS))
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", local_broker.bootstrap_servers)
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", f"{prefix}-")
    monkeypatch.setenv("FRESHET_PARTITIONS", str(SHARDS))
    monkeypatch.setenv("DATABASE_URL", operator)

    def invoke(*arguments):
        done = CliRunner().invoke(main, list(arguments))
        assert done.exit_code == 0, done.output
        assert "could not be noted" not in done.output
        return done.stdout

    return invoke


def observe_a_page_that_is_erased(owner):
    """Crawls found it, and it is erased; of another they found something, and it stays."""
    page_id = identify(URL).page_id
    with psycopg.connect(owner) as connection:
        for now in (time.time() - 60 * 86_400.0, time.time()):
            ensure_observation_partition(connection, now)
            connection.execute(
                "INSERT INTO observations SELECT 0, id, %s, %s, 1, 0, false "
                "FROM unnest(%s::int8[]) AS page (id)",
                (now, now, [page_id, page_id + 1]),
            )
        connection.execute("INSERT INTO erased_pages VALUES (0, %s, %s)", (page_id, now + 1))
        connection.commit()


def test_what_crawls_found_of_erased_pages_is_deleted_of_every_age(operator, migrated_url):
    observe_a_page_that_is_erased(migrated_url)
    assert delete_observations(operator) == 2
    assert delete_observations(operator) == 0


def test_pages_are_imported_and_purged(freshet, migrated_url, tmp_path):
    (tmp_path / "pages.csv").write_text(f"url,importance,class\n{URL},1,news\n")
    for field in ("added", "updated"):
        said = json.loads(freshet("pages", "import", "pages.csv", "--via", "copy", "--json"))
        assert (said[field], said["refused"]) == (1, 0)
    observe_a_page_that_is_erased(migrated_url)
    purged = json.loads(freshet("pages", "purge", "--host", "other.example", "--yes", "--json"))
    assert purged["observations"] == 2
    noted = [change["about"] for change in json.loads(freshet("changes", "--json"))]
    assert noted == ["pages", "pages"]


def test_budgets_limits_and_subscriptions_are_set_and_noted(freshet):
    freshet("bandwidth", "set", "5/s")
    freshet("hosts", "limit", HOST, "1/s")
    freshet("groups", "limit", "example.com", "1/s")
    freshet("backup", "save", "copy.jsonl")
    for _ in range(2):
        freshet("subscriptions", "add", "https://host-1.example/feed")
        assert "wanted" in freshet("subscriptions", "list")
        freshet("subscriptions", "remove", "https://host-1.example/feed")


def test_positions_are_settled_and_the_topic_is_taken_for_the_right_one(
    freshet, operator, migrated_url
):
    with psycopg.connect(migrated_url) as connection:
        connection.execute(
            "INSERT INTO stream_positions (consumer, topic, partition, next_offset) "
            "VALUES ('estimator', 'page-updates', 0, 5)"
        )
        connection.execute("INSERT INTO stream_topics VALUES ('page-updates', 'another')")
    freshet("positions", "settle", "--topic", "page-updates", "--yes")
    with connect(operator, "cli") as connection:
        assert read_position(connection) == 0
        # A broker that has no ids for its topics, as the local one, says nothing of this.
        set_topic(connection, "page-updates", "this one")
        assert read_topics(connection) == {"page-updates": "this one"}


def read_position(connection):
    query = "SELECT next_offset FROM stream_positions WHERE topic = 'page-updates'"
    return connection.execute(query).fetchone()[0]


def test_sites_are_watched_and_all_of_a_host_is_forgotten(operator):
    source = NewSource(f"{URL}feed", HOST, f"feed:{HOST}", "", "operator")
    for again in (True, False):
        with connect(operator, "cli", autocommit=True) as connection:
            for _ in range(2):
                add_site(connection, Site(URL, [HOST], [], []))
            add_sources(connection, URL, [source])
            add_subscription(connection, "id", URL, None, "secret")
            assert len(list_sources(connection)) == 1
            if again:
                assert remove_site(connection, URL) == [source.url]
    forget_watched(operator, HOST)
    assert watched_of_host(operator, HOST)["sites"] == []
    with connect(operator, "cli", autocommit=True) as connection:
        assert [one.state for one in list_subscriptions(connection)] == ["unwanted"]


@pytest.mark.parametrize("role", [OPERATOR, "freshet_readonly"])
def test_how_all_stands_is_read(freshet, logins, monkeypatch, role):
    monkeypatch.setenv("DATABASE_URL", logins[role])
    for command in ("status", "changes", "bandwidth history", "hosts list"):
        freshet(*command.split())
    for command in ("sites list", "positions list", "shards show", "backup save copy.jsonl"):
        freshet(*command.split())
    freshet("pages", "purge", "--dry-run")


@pytest.mark.parametrize("arguments", [("migrate",), ("shards", "grow", "8")], ids=" ".join)
def test_what_alters_tables_is_for_their_owner(freshet, arguments):
    done = CliRunner().invoke(main, list(arguments), input="y\n")
    assert done.exit_code == 2
    assert "as the user who owns the tables" in done.output
