"""Topics that others made or altered: found at every start, mended on demand, on both brokers."""

import uuid

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from shared.contracts.topics import BANDWIDTH, CRAWL_OUTCOMES, SIGNALS
from shared.runtime.findings import Finding
from shared.runtime.kafka import ensure_topics
from shared.runtime.settings import Settings

UNSAFE = {
    BANDWIDTH.name: {"cleanup.policy": "delete", "max.message.bytes": "123456"},
    SIGNALS.name: {"message.timestamp.type": "CreateTime"},
    CRAWL_OUTCOMES.name: {"retention.ms": "3600000"},
}
"""Each breaks one promise; `max.message.bytes` is nobody's business."""

WRONG = {
    BANDWIDTH.name: "cleanup.policy=delete",
    SIGNALS.name: "message.timestamp.type=CreateTime",
    CRAWL_OUTCOMES.name: "retention.ms=3600000",
}


@pytest.fixture
async def admin(broker):
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await client.start()
    yield client
    await client.close()


@pytest.fixture
async def settings(broker, admin):
    """Of an installation three of whose topics are unsafe."""
    settings = Settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"unsafe-{uuid.uuid4().hex[:8]}-",
        partitions=2,
    )
    await ensure_topics(settings, ())
    made = [
        NewTopic(settings.topic(name), 1 if name == BANDWIDTH.name else 2, 1, topic_configs=config)
        for name, config in UNSAFE.items()
    ]
    answer = await admin.create_topics(made)
    assert {code for _, code, *_ in answer.topic_errors} == {0}
    return settings


def risks(findings: list[Finding]) -> dict[str, str]:
    return {finding.about: finding.found for finding in findings if finding.level == "risk"}


async def own_settings(admin: AIOKafkaAdminClient, name: str) -> dict[str, str]:
    (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    return {entry[0]: entry[1] for entry in answer.resources[0][4] if entry[3] == 1}


class Log:
    """Remembers warnings; structlog's own capture sees nothing once a logger was used."""

    def __init__(self):
        self.lines = []

    def warning(self, event, **line):
        self.lines.append({"event": event} | line)


async def test_a_start_says_which_promises_do_not_hold_and_goes_on(settings, monkeypatch):
    log = Log()
    monkeypatch.setattr("shared.runtime.topic_safety.log", log)
    findings = await ensure_topics(settings)
    assert risks(findings) == {settings.topic(name): wrong for name, wrong in WRONG.items()}
    said = {
        line["topics"]: line for line in log.lines if line["event"] == "a promise does not hold"
    }
    assert set(said) == set(risks(findings))
    line = said[settings.topic(BANDWIDTH.name)]
    assert line["promise"] == "the budget stands until an operator changes it"
    assert line["remedy"] == "freshet topics ensure --fix"


async def test_what_can_be_mended_is_and_nothing_else_is_altered(settings, admin):
    assert risks(await ensure_topics(settings, fix=True)) == {}
    assert risks(await ensure_topics(settings)) == {}
    assert await own_settings(admin, settings.topic(BANDWIDTH.name)) == {
        "cleanup.policy": "compact",
        "max.message.bytes": "123456",
    }
    own = await own_settings(admin, settings.topic(SIGNALS.name))
    assert own == {"message.timestamp.type": "LogAppendTime"}
    own = await own_settings(admin, settings.topic(CRAWL_OUTCOMES.name))
    assert own == {"retention.ms": CRAWL_OUTCOMES.config["retention.ms"]}


async def test_topics_of_our_own_say_how_many_must_have_a_record(broker, admin):
    settings = Settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"own-{uuid.uuid4().hex[:8]}-",
        partitions=2,
    )
    assert {finding.level for finding in await ensure_topics(settings, (BANDWIDTH,))} <= {"note"}
    own = await own_settings(admin, settings.topic(BANDWIDTH.name))
    assert own["min.insync.replicas"] == "1"
