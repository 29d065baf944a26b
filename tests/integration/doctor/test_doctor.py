"""`freshet doctor` on real servers: what is well, what is at risk, and the exit code."""

import asyncio
import json
import uuid

import psycopg
import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from apache import ONCE
from click.testing import CliRunner

from migrations.upgrade import migrate
from services.cli.main import main
from shared.runtime.growing import add_partitions
from shared.runtime.settings import load_settings
from shared.store.growth import begin_growth

PARTITIONS = 2
FIRST = ", while estimators run: it waits until they have applied all"


@pytest.fixture
def prefix(broker, database_url, monkeypatch, tmp_path):
    """An installation of its own; the prefix of its topics."""
    prefix = f"doctor-{uuid.uuid4().hex[:8]}-"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("DATABASE_URL", database_url)
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", prefix)
    monkeypatch.setenv("FRESHET_PARTITIONS", str(PARTITIONS))
    return prefix


def run(*arguments: str):
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


def diagnosis() -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and finding by subject."""
    result = run("doctor", "--json")
    answer = json.loads(result.stdout)
    assert answer["risks"] == sum(f["level"] == "risk" for f in answer["findings"])
    return result.exit_code, {finding["about"]: finding for finding in answer["findings"]}


def risks(findings: dict[str, dict[str, str]]) -> dict[str, str]:
    return {about: f["found"] for about, f in findings.items() if f["level"] == "risk"}


def test_an_installation_is_well_and_an_unsafe_topic_is_found_and_mended(
    prefix, broker, database_url
):
    migrate(database_url, PARTITIONS)
    asyncio.run(made_by_others(broker.bootstrap_servers, f"{prefix}bandwidth"))
    assert run("topics", "ensure").exit_code == 0

    code, found = diagnosis()
    assert (code, risks(found)) == (1, {f"{prefix}bandwidth": "cleanup.policy=delete"})
    finding = found[f"{prefix}bandwidth"]
    assert finding["wanted"] == "cleanup.policy=compact"
    assert finding["promise"] == "the budget stands until an operator changes it"
    assert finding["remedy"] == "freshet topics ensure --fix"
    shown = run("doctor")
    assert shown.exit_code == 1
    assert "1 promise is at risk" in shown.stdout
    assert "the budget stands until an operator changes it" in " ".join(shown.stdout.split())

    assert run("topics", "ensure", "--fix").exit_code == 0
    code, found = diagnosis()
    assert (code, risks(found)) == (0, {})
    assert found["all topics"]["found"] == "one broker has the only copy"
    assert found["all topics"]["level"] == "note"
    assert found["shards"]["found"] == str(PARTITIONS)
    assert found["version"]["found"].startswith("PostgreSQL")
    assert "freshet_estimator" in found["this user"]["found"]
    assert "no promise is at risk" in run("doctor").stdout


async def made_by_others(bootstrap_servers: str, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    made = NewTopic(topic, 1, 1, topic_configs={"cleanup.policy": "delete"})
    await admin.create_topics([made])
    await admin.close()


def test_a_server_without_anything_says_what_to_run(prefix):
    code, found = diagnosis()
    assert code == 1
    missing = [finding for finding in found.values() if finding["found"] == "no such topic"]
    assert [finding["remedy"] for finding in missing] == ["freshet topics ensure"]
    assert found["schema"]["remedy"] == "freshet migrate"


def test_an_unsafe_database_is_found(prefix, database_url):
    migrate(database_url, PARTITIONS)
    run("topics", "ensure")
    name = database_url.split("?")[0].rpartition("/")[2]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off")
        connection.execute("UPDATE alembic_version SET version_num = '0001'")
        connection.execute("DROP TABLE page_urls_1")
        connection.execute("REVOKE SELECT ON pages FROM freshet_scheduler")
    code, found = diagnosis()
    assert code == 1
    assert risks(found) == {
        "synchronous_commit": "off",
        "schema": "revision 0001",
        "table page_urls": "1 partitions",
        "freshet_scheduler": "may not SELECT pages",
    }


def test_other_shards_than_the_settings_say_are_found(prefix, database_url, monkeypatch):
    migrate(database_url, PARTITIONS)
    run("topics", "ensure")
    monkeypatch.setenv("FRESHET_PARTITIONS", "3")
    code, found = diagnosis()
    assert code == 1
    assert risks(found)["shards"] == "made for 2"
    assert any(f["found"] == "2 partitions" for f in found.values() if f["level"] == "risk")


def test_a_growth_of_shards_that_is_not_over_is_found(prefix, database_url):
    migrate(database_url, PARTITIONS)
    run("topics", "ensure")
    begin_growth(database_url, 3 * PARTITIONS)
    _, found = diagnosis()
    assert found["shards"]["level"] == "note"
    assert (
        found["shards"]["found"] == f"growing to {3 * PARTITIONS}: {PARTITIONS} are not split yet"
    )
    assert found["shards"]["remedy"] == f"freshet shards grow {3 * PARTITIONS}"
    # Shards that have no hosts yet have no partitions.
    assert not [about for about in risks(found) if about.startswith("table ")]
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("DROP TABLE pages_1")
    _, found = diagnosis()
    assert risks(found)["table pages"] == f"{PARTITIONS - 1} partitions"


def test_topics_that_were_made_by_settings_of_before_a_growth_are_found(prefix, database_url):
    """Or made anew: whatever says how many there are, each part of it agrees with the settings."""
    migrate(database_url, PARTITIONS)
    begin_growth(database_url, 2 * PARTITIONS)
    _, found = diagnosis()
    assert "shards of both" not in found, "there are no topics, which is said"
    run("topics", "ensure")
    code, found = diagnosis()
    assert code == 1
    assert risks(found) == {
        "shards of both": f"{PARTITIONS} partitions of each topic, and {2 * PARTITIONS} shards in "
        "the database"
    }
    assert found["shards of both"]["remedy"] == f"freshet shards grow {2 * PARTITIONS}"
    asyncio.run(add_partitions(load_settings(), 2 * PARTITIONS))
    assert "shards of both" not in diagnosis()[1]
    asyncio.run(add_partitions(load_settings(), 4 * PARTITIONS))
    older_dump = diagnosis()[1]["shards of both"]
    assert found["shards of both"] != older_dump
    assert older_dump["remedy"] == f"freshet shards grow {4 * PARTITIONS}{FIRST}"


@ONCE
def test_one_of_several_databases_that_was_restored_as_it_was_before_a_growth_is_named(
    prefix, database_url, postgres_server, monkeypatch
):
    home, other = database_url, postgres_server.create_database(f"test_{uuid.uuid4().hex}")
    monkeypatch.delenv("DATABASE_URL")
    monkeypatch.setenv("FRESHET_DATABASES", f"0={home},1={other}")
    assert run("migrate").exit_code == 0
    run("topics", "ensure")
    begin_growth(home, 2 * PARTITIONS)
    asyncio.run(add_partitions(load_settings(), 2 * PARTITIONS))

    _, found = diagnosis()
    assert risks(found) == {
        "shards of both (1-1/2)": f"{2 * PARTITIONS} partitions of each topic, and {PARTITIONS} "
        "shards in the database"
    }
    remedy = f"freshet shards grow {2 * PARTITIONS}{FIRST}"
    assert found["shards of both (1-1/2)"]["remedy"] == remedy
    begin_growth(other, 2 * PARTITIONS)
    assert risks(diagnosis()[1]) == {}


def test_topics_that_are_growing_or_have_grown_are_told_from_mistakes(prefix, monkeypatch):
    run("topics", "ensure")
    asyncio.run(add_partitions(load_settings(), 2 * PARTITIONS))
    _, found = diagnosis()
    assert "topics of the shards" not in found
    assert not [about for about in risks(found) if about.startswith(prefix)]
    monkeypatch.setenv("FRESHET_PARTITIONS", str(4 * PARTITIONS))
    _, found = diagnosis()
    assert found["topics of the shards"]["remedy"] == f"freshet shards grow {4 * PARTITIONS}"


def test_servers_that_are_away_are_found(prefix, monkeypatch):
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("DATABASE_URL", "postgresql://freshet@127.0.0.1:1/freshet")
    code, found = diagnosis()
    assert code == 1
    assert "cannot be reached" in found["broker"]["found"]
    assert "cannot be reached" in found["database"]["found"]


def test_what_a_worker_may_is_told(prefix, database_url):
    migrate(database_url, PARTITIONS)
    run("topics", "ensure")
    user = f"doctor_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {user} LOGIN IN ROLE freshet_scheduler")
    try:
        told = CliRunner().invoke(
            main, ["doctor", "--json"], env={"DATABASE_URL": as_user(database_url, user)}
        )
        found = {f["about"]: f for f in json.loads(told.stdout)["findings"]}
        assert found["this user"] | {"found": ""} == {
            "area": "database",
            "level": "ok",
            "about": "this user",
            "found": "",
            "wanted": "",
            "promise": "",
            "remedy": "",
        }
        # The frontier and the discoverer read some of what a scheduler does, and write quotas.
        assert found["this user"]["found"] == f"{user} may do the work of freshet_scheduler"
        assert found["schema"]["level"] == "ok"
        assert told.exit_code == 0
    finally:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(f"DROP ROLE {user}")


def as_user(url: str, user: str) -> str:
    return url.replace("postgres@", f"{user}@", 1)
