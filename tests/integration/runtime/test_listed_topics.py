"""`freshet topics list` and `ensure` say how many partitions there are, not what settings say."""

import asyncio
import json
import uuid

import pytest
from click.testing import CliRunner

from services.cli.main import main
from shared.contracts.topics import BANDWIDTH, CRAWL_REQUESTS, HOST_LIMITS, TOPICS
from shared.runtime.growing import add_partitions
from shared.runtime.kafka import ensure_topics
from shared.runtime.settings import load_settings

BEFORE, AFTER = 2, 6


@pytest.fixture
def settings(broker, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    prefix = f"t{uuid.uuid4().hex}."
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", prefix)
    monkeypatch.setenv("FRESHET_PARTITIONS", str(BEFORE))
    return load_settings()


def listed(settings, *arguments):
    done = CliRunner().invoke(main, ["topics", *arguments, "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    prefix = settings.topic_prefix
    rows = {row["topic"].removeprefix(prefix): row for row in json.loads(done.stdout)}
    assert set(rows) == {topic.name for topic in TOPICS}
    return {name: row["partitions"] for name, row in rows.items()}


@pytest.mark.parametrize("command", ["list", "ensure"])
def test_partitions_are_those_after_a_growth(settings, command):
    asyncio.run(ensure_topics(settings))
    assert listed(settings, command)[CRAWL_REQUESTS.name] == BEFORE
    asyncio.run(add_partitions(settings, AFTER))
    partitions = listed(settings, command)
    assert partitions[CRAWL_REQUESTS.name] == partitions[HOST_LIMITS.name] == AFTER
    assert partitions[BANDWIDTH.name] == 1


def test_a_topic_that_is_not_there_has_none(settings):
    assert set(listed(settings, "list").values()) == {0}
    assert min(listed(settings, "ensure").values()) == 1
