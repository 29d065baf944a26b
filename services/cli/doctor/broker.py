"""The brokers and the topics of the contract."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.conn import create_conn

from shared.contracts.topics import TOPICS
from shared.runtime.aiokafka_patches import versions_of
from shared.runtime.findings import Finding, gathered
from shared.runtime.kafka import client_options, partitions_of
from shared.runtime.partition_counts import Growth, TopicMismatch, growth_of
from shared.runtime.settings import Settings
from shared.runtime.topic_safety import TopicState, judge, look_at_topics

_JOIN_GROUP: Final = 11
_STATIC_MEMBERS: Final = 5
"""From this version of JoinGroup on a broker knows static members (Kafka 2.3)."""

_PRODUCE, _FETCH = 0, 1
REQUEST_MS: Final = 10_000


async def look_at_broker(settings: Settings) -> list[Finding]:
    """Everything that was looked at, good or bad; nothing is changed.

    Raises:
        KafkaError: no broker answers.
    """
    admin = AIOKafkaAdminClient(**client_options(settings), request_timeout_ms=REQUEST_MS)
    try:
        await admin.start()
        cluster = await admin.describe_cluster()
        existing = set(await admin.list_topics())
        names = [settings.topic(topic.name) for topic in TOPICS]
        states = await look_at_topics(admin, [name for name in names if name in existing])
    finally:
        await admin.close()
    brokers = len(cluster["brokers"])
    controller = cluster.get("controller_id")
    said = f"{brokers} broker{'s' if brokers > 1 else ''}, controller {controller}"
    topics = gathered(_topics(settings, {state.name: state for state in states}, brokers))
    return [
        Finding("ok", "cluster", said),
        await _version(settings),
        *(_shorter(finding, names) for finding in topics),
    ]


def _shorter(finding: Finding, names: list[str]) -> Finding:
    return replace(finding, about="all topics") if finding.about == ", ".join(names) else finding


async def _version(settings: Settings) -> Finding:
    """Brokers do not tell their version, but which requests they take."""
    versions = await _api_versions(settings)
    _least, most = versions.get(_JOIN_GROUP, (0, 0))
    said = ", ".join(
        f"{name} up to {versions[key][1]}"
        for name, key in (("Produce", _PRODUCE), ("Fetch", _FETCH), ("JoinGroup", _JOIN_GROUP))
        if key in versions
    )
    if most < _STATIC_MEMBERS:
        return Finding(
            "risk",
            "protocol",
            said,
            f"JoinGroup {_STATIC_MEMBERS}, which Kafka has from 2.3 on",
            "a worker that restarts keeps its shards",
            "upgrade the brokers",
        )
    return Finding("ok", "protocol", said)


async def _api_versions(settings: Settings) -> dict[int, tuple[int, int]]:
    options = client_options(settings)
    servers = str(options.pop("bootstrap_servers")).split(",")
    for server in servers:
        host, _, port = server.strip().rpartition(":")
        try:
            connection = await create_conn(
                host.strip("[]"), int(port), **options, request_timeout_ms=REQUEST_MS
            )
        except OSError:
            continue
        try:
            return versions_of(connection)
        finally:
            connection.close()
    return {}


def _topics(settings: Settings, states: dict[str, TopicState], brokers: int) -> Iterator[Finding]:
    growth = _growth(settings, states)
    if growth is not None and not growth.is_over:
        yield _under_way(growth.shards)
    for topic in TOPICS:
        name = settings.topic(topic.name)
        state = states.get(name)
        if state is None:
            yield Finding(
                "risk",
                name,
                "no such topic",
                "a topic",
                "workers start",
                "freshet topics ensure",
            )
            continue
        found = judge(topic, state, brokers, settings)
        wanted = partitions_of(topic, settings)
        has_grown = topic.partitioning == "shards" and growth is not None
        if topic.partitioning != "any" and state.partitions != wanted and not has_grown:
            found.append(_other_partitions(name, state.partitions, wanted))
        if all(finding.level == "ok" for finding in found):
            yield Finding("ok", name, "its settings hold what is promised")
        yield from found


def _growth(settings: Settings, states: dict[str, TopicState]) -> Growth | None:
    """How the shards have grown; None: their topics have numbers that no growth explains."""
    names = {settings.topic(topic.name) for topic in TOPICS if topic.partitioning == "shards"}
    counts = {name: state.partitions for name, state in states.items() if name in names}
    try:
        return growth_of(counts, settings.partitions)
    except TopicMismatch:
        return None


def _under_way(shards: int) -> Finding:
    return Finding(
        "risk",
        "topics of the shards",
        "not all have their new partitions",
        f"{shards} partitions",
        "the number of shards grows",
        f"freshet shards grow {shards}",
    )


def _other_partitions(name: str, found: int, wanted: int) -> Finding:
    return Finding(
        "risk",
        name,
        f"{found} partitions",
        f"{wanted} partitions",
        "every page is served by one shard",
        f"set FRESHET_PARTITIONS={found}, or use another FRESHET_TOPIC_PREFIX; only "
        "`freshet shards grow` gives the topics of an installation more partitions",
    )
