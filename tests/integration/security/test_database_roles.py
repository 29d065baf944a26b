"""Every worker does its work as a user that may do nothing else."""

import contextlib
import time
import uuid
from pathlib import Path

import numpy as np
import psycopg
import pytest
from workers import PATIENCE_SECONDS, reader, settings_for, worker

from migrations.upgrade import migrate
from shared.contracts.codec import decode, encode
from shared.contracts.layout import Layout
from shared.contracts.messages import Bandwidth, CrawlOutcome, CrawlRequest, PageUpdate, Signal
from shared.contracts.topics import (
    BANDWIDTH,
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    PAGE_UPDATES,
    SIGNALS,
)
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.store.columns import UnansweredNews, UnansweredPages
from shared.store.connection import connect
from shared.store.erasing import ErasedRows, erase_pages
from shared.store.growth import begin_growth, split_shard
from shared.store.layout import fetch_layout
from shared.store.ping_accounts import PingNews, read_delays, write_pings
from shared.store.roles import ROLES, ensure_roles
from shared.store.snapshot import load_for_learning, load_shard
from shared.store.splits import ask, hold, resume, take_over
from shared.store.unanswered import read_unanswered, write_unanswered

pytestmark = pytest.mark.postgres

SHARDS = 4
URLS = [f"https://host-{n}.example/" for n in range(8)]


def as_user(url: str, user: str) -> str:
    """The address, as another user."""
    return url.replace("postgres@", f"{user}@", 1)


@pytest.fixture
async def publisher(local_broker):
    prefix = f"roles-{uuid.uuid4().hex[:8]}"
    settings = settings_for(local_broker.bootstrap_servers, prefix, partitions=SHARDS)
    await ensure_topics(settings)
    made = Publisher(settings)
    await made.start()
    yield made
    await made.stop()


@pytest.mark.slow(25)
async def test_all_workers_work_under_their_roles(publisher, logins, migrated_url, tmp_path):
    settings = publisher.settings
    for url in URLS:
        host = url.split("/")[2]
        await publisher.send_for_host(PAGE_UPDATES, host, PageUpdate("upsert", url))
    await publisher.send_global(BANDWIDTH, Bandwidth(20.0))
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(worker(name, as_role(settings, logins, name), tmp_path))
            for name in ("ingester", "estimator", "scheduler", "coordinator")
        ]
        for process in started:
            await until_ready(process)
        async with reader(settings, CRAWL_REQUESTS) as requests:
            for url in URLS:
                await publisher.send(SIGNALS, None, encode(Signal(url, "x")))
            first = await requests.until(lambda got: len(got) >= len(URLS))
            for result in ("unchanged", "changed"):
                await answer(publisher, first, result)
            await until_observed(migrated_url, len(URLS))
        await until_decided(migrated_url)
        for process in started:
            assert process.stop() == 0
            assert "permission denied" not in process.log


def as_role(settings, logins, name: str):
    """The settings of a worker; the ingester's lead to no database at all."""
    url = logins.get(f"freshet_{name}", "postgresql://nobody@127.0.0.1:1/none")
    return settings.model_copy(update={"database_url": type(settings.database_url)(url)})


async def until_ready(process):
    """Wait until it is ready; compiling for the first time takes it a minute or two."""
    for attempt in range(7):
        try:
            await process.ready()
        except AssertionError:
            if process.poll() is not None or attempt == 6:
                raise
        else:
            return


async def answer(publisher, records, result):
    for record in records[: len(URLS)]:
        request = decode(CrawlRequest, record.value)
        outcome = CrawlOutcome(request.url, time.time(), request.host, result=result)
        await publisher.send_for_host(CRAWL_OUTCOMES, request.host, outcome)
    await publisher.flush()


async def until_observed(migrated_url, count):
    await until(migrated_url, "SELECT count(*) >= %s FROM observations", count)


async def until_decided(migrated_url):
    await until(migrated_url, "SELECT count(*) >= %s FROM multiplier_history", 1)


async def until(migrated_url, question, argument):
    deadline = time.monotonic() + PATIENCE_SECONDS
    async with await psycopg.AsyncConnection.connect(migrated_url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            row = await (await connection.execute(question, (argument,))).fetchone()
            if row[0]:
                return
            await connection.execute("SELECT pg_sleep(0.1)")
    raise AssertionError(f"never: {question} {argument}")


FORBIDDEN = {
    "freshet_estimator": [
        "TRUNCATE pages",
        "DROP TABLE observations",
        "UPDATE coordinator_lease SET epoch = 9",
        "INSERT INTO multiplier_history (version, computed_at, effective_at, multiplier, "
        "crawls_per_second, cause) VALUES (1, 1, 1, 1, 1, '')",
        "UPDATE deployment SET shards = 9",
        "UPDATE shard_splits SET state = 3",
        "UPDATE observations SET changed = true",
        "DELETE FROM observations",
        "UPDATE unanswered_pages SET requests = 9",
    ],
    "freshet_scheduler": [
        "UPDATE pages SET importance = 9",
        "UPDATE pages_0 SET importance = 9",
        "INSERT INTO page_urls VALUES (0, 1, 'https://a.example/')",
        "UPDATE hosts SET blocked_until = 9",
        "UPDATE deployment SET shards = 9",
        "UPDATE shard_splits SET until = 9",
        "UPDATE stream_positions SET next_offset = 9",
        "SELECT * FROM observations",
        "SELECT * FROM multiplier_history",
        "UPDATE coordinator_lease SET epoch = 9",
        "SELECT freshet_add_observations(1, 1)",
        "SELECT freshet_drop_observations(1)",
    ],
    "freshet_coordinator": [
        "SELECT * FROM pages",
        "SELECT * FROM page_urls_0",
        "UPDATE hosts SET blocked_until = 9",
        "UPDATE multiplier_history SET multiplier = 9",
        "INSERT INTO coordinator_lease (id, epoch, holder, beat) VALUES (1, 0, '', 0)",
        "SELECT freshet_drop_observations(1)",
    ],
    "freshet_receiver": [
        "SELECT * FROM pages",
        "SELECT * FROM deployment",
        "INSERT INTO websub_subscriptions (id, topic, secret, state) VALUES ('', '', '', '')",
        "DELETE FROM ping_accounts",
        "SELECT freshet_drop_observations(1)",
    ],
    "freshet_poller": [
        "SELECT * FROM pages",
        "SELECT * FROM websub_subscriptions",
        "SELECT page_id FROM pages_0",
        "UPDATE watched_sites SET hosts = '{}'",
        "DELETE FROM watched_sites",
        "TRUNCATE watched_sources",
        "DELETE FROM stream_cursors",
    ],
    "freshet_frontier": [
        "UPDATE pages SET importance = 9",
        "UPDATE hosts SET blocked_until = 9",
        "SELECT * FROM observations",
        "SELECT * FROM stream_positions",
    ],
    "freshet_discoverer": [
        "SELECT * FROM pages",
        "SELECT * FROM page_urls",
        "SELECT blocked_until FROM hosts",
        "DELETE FROM let_in_hosts",
        "UPDATE pages SET importance = 9",
        "SELECT * FROM stream_positions",
    ],
    "freshet_operator": [
        "DELETE FROM pages",
        "TRUNCATE observations",
        "UPDATE observations SET changed = true",
        "UPDATE coordinator_lease SET epoch = 9",
        "UPDATE deployment SET shards = 9",
        "UPDATE shard_splits SET state = 3",
        "UPDATE operator_changes SET who = 'nobody'",
        "DELETE FROM operator_changes",
        "UPDATE multiplier_history SET multiplier = 9",
        "SELECT freshet_drop_observations(1)",
    ],
    "freshet_readonly": [
        "SELECT secret FROM websub_subscriptions",
        "UPDATE pages SET importance = 9",
        "DELETE FROM observations",
        "UPDATE coordinator_lease SET epoch = 9",
        "SELECT freshet_drop_observations(1)",
    ],
}
EVERYBODY = ["CREATE TABLE mine (a int)", "UPDATE alembic_version SET version_num = '0'"]


@pytest.mark.parametrize("role", list(ROLES))
def test_what_a_worker_need_not_do_it_may_not_do(logins, role):
    with psycopg.connect(logins[role], autocommit=True) as connection:
        for statement in FORBIDDEN[role] + EVERYBODY:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(statement)


def test_a_receiver_writes_down_what_sources_have_sent(logins):
    for _ in range(2):
        with psycopg.connect(logins["freshet_receiver"], autocommit=True) as connection:
            write_pings(connection, [PingNews("cms", 3, 2, 60.0), PingNews("indexnow", 1)])
    with psycopg.connect(logins["freshet_readonly"], autocommit=True) as connection:
        assert read_delays(connection) == {"cms": 30.0}


def test_a_scheduler_writes_down_what_nobody_answers_and_an_estimator_erases_it(logins):
    pages = UnansweredPages(np.array([1, 2]), np.ones(2, np.int16), *(np.ones(2) for _ in range(3)))
    for answered in ([], [3]):
        with connect(logins["freshet_scheduler"], "test") as connection:
            take_over(connection, [0], "claim")
            news = UnansweredNews(0, "claim", pages, np.array(answered, np.int64))
            assert write_unanswered(connection, [news]) == {0}
    with connect(logins["freshet_estimator"], "test") as connection:
        erase_pages(connection, ErasedRows(np.zeros(1, np.int16), np.ones(1, int), np.ones(1)))
    with connect(logins["freshet_readonly"], "test") as connection:
        assert read_unanswered(connection, 0).page_ids.tolist() == [2]


def test_the_reading_role_reads_everything(logins):
    with psycopg.connect(logins["freshet_readonly"], autocommit=True) as connection:
        for table in ROLES["freshet_readonly"]:
            connection.execute(f"SELECT * FROM {table}").fetchall()
        connection.execute("SELECT * FROM pages_3").fetchall()


NOT_ALLOWED = psycopg.errors.InsufficientPrivilege
READERS = ["freshet_estimator", "freshet_scheduler", "freshet_frontier", "freshet_readonly"]
"""Of partitions one by one."""
LOOKERS = [
    *("freshet_estimator", "freshet_scheduler", "freshet_poller", "freshet_frontier"),
    "freshet_discoverer",
]


def test_who_looks_pages_up_reads_which_shard_has_them_and_those_that_a_growth_adds(
    logins, migrated_url
):
    begin_growth(migrated_url, 2 * SHARDS)
    for role in (*LOOKERS, "freshet_coordinator", "freshet_readonly"):
        assert fetch_layout(logins[role]) == Layout(2 * SHARDS, SHARDS, frozenset())
    with (
        connect(logins["freshet_scheduler"], "test", autocommit=True) as connection,
        connect(migrated_url, "test", autocommit=True) as command,
    ):
        ask(command, 1, 1000.0)
        take_over(connection, [1], "before")
        assert hold(connection, 1, claim="before")
        take_over(connection, [1], "after")
        assert hold(connection, 1, claim="after")
        assert not resume(connection, 1)
        split_shard(command, fetch_layout(migrated_url), 1, "test")
    for role, may in (*((name, True) for name in READERS), ("freshet_poller", False)):
        with connect(logins[role], "test", autocommit=True) as connection:
            expected = contextlib.nullcontext() if may else pytest.raises(NOT_ALLOWED)
            with expected:
                connection.execute("SELECT * FROM pages_5, page_urls_5").fetchall()
    for role in ("freshet_estimator", "freshet_scheduler"):
        load = load_shard if role == "freshet_scheduler" else load_for_learning
        # Also those whose hosts have not come yet.
        assert [load(logins[role], shard).shard for shard in (1, 5, 7)] == [1, 5, 7]


def test_migrating_again_restores_privileges_and_takes_others_away(logins, migrated_url):
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        connection.execute("GRANT UPDATE ON pages TO freshet_scheduler")
        connection.execute("REVOKE SELECT ON hosts FROM freshet_scheduler")
    migrate(migrated_url, SHARDS)
    with psycopg.connect(logins["freshet_scheduler"], autocommit=True) as connection:
        connection.execute("SELECT * FROM hosts").fetchall()
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("UPDATE pages SET importance = 9")


def test_an_owner_who_may_not_create_roles_migrates_all_the_same(
    scratch_dir: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    from deploy.local.postgres import EmbeddedPostgres

    server = EmbeddedPostgres(scratch_dir / f"roles-{uuid.uuid4().hex[:8]}")
    server.start()
    try:
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute("CREATE ROLE plain LOGIN")
            connection.execute("CREATE DATABASE pages OWNER plain")
        url = as_user(server.database_uri("pages"), "plain")
        migrate(url, SHARDS)
        assert missing_roles(url) == list(ROLES)
        with psycopg.connect(server.uri, autocommit=True) as connection:
            for role in ROLES:
                connection.execute(f"CREATE ROLE {role} NOLOGIN")
        assert missing_roles(url) == []
        with psycopg.connect(server.uri, autocommit=True) as connection:
            connection.execute("CREATE ROLE reader LOGIN IN ROLE freshet_readonly")
        with psycopg.connect(as_user(url.replace("plain", "postgres"), "reader")) as connection:
            assert connection.execute("SELECT shards FROM deployment").fetchone() == (SHARDS,)
    finally:
        server.stop()
    # Where it is said depends on whether a test before has configured the logs.
    said = "".join(capfd.readouterr()) + caplog.text
    assert "CREATE ROLE freshet_estimator NOLOGIN" in said
    assert "migrate again" in said


def missing_roles(url: str) -> list[str]:
    with psycopg.connect(url) as connection:
        return ensure_roles(connection)
