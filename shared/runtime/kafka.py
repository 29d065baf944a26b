"""Kafka clients made from the settings, and the topics of the contract on the broker."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import structlog
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import (
    KafkaConnectionError,
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    TopicAlreadyExistsError,
    for_code,
)
from aiokafka.helpers import create_ssl_context
from aiokafka.structs import RecordMetadata

from shared.contracts.topic_safety import IN_SYNC, least_in_sync
from shared.contracts.topics import TOPICS, Topic
from shared.runtime.access import AccessRefused, check_access
from shared.runtime.aiokafka_patches import unpack_within_limits
from shared.runtime.findings import Finding
from shared.runtime.partition_counts import check_shards, mismatch
from shared.runtime.refused_batches import go_on_after_refusals
from shared.runtime.retrying import until_it_passes
from shared.runtime.settings import Settings, SettingsError
from shared.runtime.topic_safety import check_topics, log_risks

log = structlog.get_logger(__name__)

MAX_BATCH_BYTES = 512 * 1024
"""Records are gathered into batches of this size, below any broker's message limit."""

MOST_FETCHED_BYTES = 1024 * 1024
_LOG_APPEND_TIME = 1
"""Kafka's number for times that the broker gives."""

LEAST_FETCHED_BYTES = 64 * 1024
"""Of one partition in one answer."""

START_PATIENCE_SECONDS = 120.0
"""A command waits so long for its broker before it gives up; a worker waits on."""

METADATA_SECONDS: Final = 60
"""So often a client looks by itself which partitions there are: some may have been added."""


def _ssl_context(settings: Settings) -> ssl.SSLContext | None:
    if not settings.kafka_security_protocol.endswith("SSL"):
        return None
    files = {
        "cafile": settings.kafka_ssl_cafile,
        "certfile": settings.kafka_ssl_certfile,
        "keyfile": settings.kafka_ssl_keyfile,
    }
    given = {name: str(path) for name, path in files.items() if path is not None}
    try:
        context: ssl.SSLContext = create_ssl_context(**given)
    except (OSError, ValueError) as error:
        named = ", ".join(
            f"FRESHET_KAFKA_SSL_{name.upper()}={path}" for name, path in given.items()
        )
        raise SettingsError(
            f"TLS to Kafka cannot be set up from {named}: {error}; these are PEM files, the key "
            "belongs to the certificate, and this account must be able to read them"
        ) from error
    return context


def client_options(settings: Settings) -> dict[str, Any]:
    """What every aiokafka client needs: where the brokers are, and how to get in."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap_servers,
        "client_id": f"freshet-{settings.instance}",
        "security_protocol": settings.kafka_security_protocol,
        "ssl_context": _ssl_context(settings),
    }
    if settings.kafka_security_protocol.startswith("SASL") and settings.kafka_sasl_password:
        options["sasl_mechanism"] = settings.kafka_sasl_mechanism
        options["sasl_plain_username"] = settings.kafka_sasl_username
        options["sasl_plain_password"] = settings.kafka_sasl_password.get_secret_value()
    return options


def make_producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """An idempotent producer: a record that the client retries is stored once."""
    defaults: dict[str, Any] = {
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 2,
        "max_batch_size": MAX_BATCH_BYTES,
        "request_timeout_ms": 30_000,
        "metadata_max_age_ms": METADATA_SECONDS * 1000,
    }
    producer = AIOKafkaProducer(**client_options(settings), **(defaults | options))
    go_on_after_refusals(producer)
    return producer


async def started_producer(settings: Settings, **options: Any) -> AIOKafkaProducer:
    """A producer that is connected; of one that cannot be, nothing is left behind.

    Args:
        settings: where the brokers are.
        options: more of aiokafka's.

    Raises:
        KafkaError: the brokers do not answer.
    """
    producer = make_producer(settings, **options)
    await start_or_stop(producer)
    return producer


async def start_or_stop(producer: AIOKafkaProducer) -> None:
    """Connect a producer; of one that cannot be, nothing is left behind.

    Raises:
        KafkaError: the brokers do not answer.
    """
    try:
        await producer.start()
    except BaseException:
        await producer.stop()
        raise


def make_consumer(settings: Settings, group: str | None = None, **options: Any) -> AIOKafkaConsumer:
    """A consumer that never commits on its own.

    Crawlers and pingers may write in transactions: of those only what is committed is read, up to
    where the oldest one begins that is not ended yet, and that is also what `end_offsets` says. A
    transaction that nobody ends is ended by the broker, after the `transaction.timeout.ms` of its
    producer (at most the broker's `transaction.max.timeout.ms`, 15 minutes): until then what was
    written after it began is not read, but nobody waits for it either. The end of a transaction
    takes an offset of its own and is no record, so who asks whether all is read must compare
    `position()` with the end, never the last record.

    Args:
        settings: where the brokers are.
        group: consumer group (the topic prefix is added), joined as a static member so that a
            restart within the session timeout moves no shard; None: partitions are assigned.
        options: more of aiokafka's.
    """
    defaults: dict[str, Any] = {
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": "read_committed",
        "fetch_max_wait_ms": 100,
        "fetch_max_bytes": min(16 * 1024 * 1024, settings.fetch_buffer_bytes),
        "max_partition_fetch_bytes": MOST_FETCHED_BYTES,
        "metadata_max_age_ms": METADATA_SECONDS * 1000,
    }
    if group is not None:
        timeout_ms = int(settings.kafka_session_timeout_seconds * 1000)
        defaults |= {
            "group_id": settings.topic_prefix + group,
            "group_instance_id": f"{group}-{settings.instance}",
            "session_timeout_ms": timeout_ms,
            # A member learns by a heartbeat that the others have to share anew: the rest of the
            # time that the shards of a dead member are served by nobody.
            "heartbeat_interval_ms": min(max(timeout_ms // 20, 200), 1000),
            "max_poll_interval_ms": 300_000,
        }
    unpack_within_limits()
    return AIOKafkaConsumer(**client_options(settings), **(defaults | options))


def appended_at(record: ConsumerRecord | RecordMetadata) -> float | None:
    """The broker's own time of a record, Unix seconds; None: its topic has the producers' times."""
    if record.timestamp_type != _LOG_APPEND_TIME or record.timestamp is None:
        return None
    return float(record.timestamp) / 1000


def fetch_bytes(settings: Settings, topics: int, partitions: int = 0) -> int:
    """How much may be read ahead of each partition, so that all partitions of some topics together
    stay at about `fetch_buffer_bytes`; a batch of records comes whole, however long.

    Args:
        settings: of the process.
        topics: how many are read.
        partitions: that each of them has, if that may be more than the settings say.
    """
    each = settings.fetch_buffer_bytes // (topics * max(settings.partitions, partitions))
    return min(max(each, LEAST_FETCHED_BYTES), MOST_FETCHED_BYTES)


def gathering(seconds: float, partition_bytes: int = MOST_FETCHED_BYTES) -> dict[str, Any]:
    """Options of a consumer whose brokers gather records for so long before they answer.

    An answer costs its reader and the broker as much as some hundred records, and at a thousand
    records a second there would be one for every few of them.

    Args:
        seconds: a record waits no longer; at 0 it does not wait.
        partition_bytes: how much is read ahead of a partition: half of it is not waited with.
    """
    options = {"max_partition_fetch_bytes": partition_bytes}
    if seconds <= 0:
        return options
    wait_ms = max(round(seconds * 1000), 1)
    return options | {"fetch_max_wait_ms": wait_ms, "fetch_min_bytes": partition_bytes // 2}


def partitions_of(topic: Topic, settings: Settings) -> int:
    """How many partitions a topic of the contract has."""
    return 1 if topic.partitioning == "single" else settings.partitions


async def ensure_topics(
    settings: Settings,
    topics: tuple[Topic, ...] = TOPICS,
    *,
    fix: bool = False,
    patience_seconds: float = START_PATIENCE_SECONDS,
) -> list[Finding]:
    """Create what the broker lacks, and check what it has. Waits for a broker that is not up yet.

    Args:
        settings: of this installation.
        topics: of the contract.
        fix: alter settings of topics that a promise rests on, where that is safe.
        patience_seconds: how long it waits.

    Returns:
        what does not hold of the topics, of each by itself. The risks are logged as well; they stop
        nobody.

    Raises:
        TopicMismatch: a topic has another number of partitions than configured.
        AccessRefused: a password or certificate is wrong.
        KafkaError: the broker cannot be reached or refuses.
    """
    findings: list[Finding] = []
    async for attempt in until_it_passes(None, may_pass, patience_seconds=patience_seconds):
        with attempt:
            findings = await _ensure_topics(settings, topics, fix=fix)
    log_risks(findings)
    return findings


def may_pass(error: BaseException) -> bool:
    """Whether waiting may help: the broker is away or busy, not when it refuses."""
    if isinstance(error, KafkaError):
        # The client calls a time that is up final; the broker may be back a moment later.
        return bool(error.retriable) or isinstance(error, KafkaConnectionError | KafkaTimeoutError)
    return isinstance(error, OSError | asyncio.TimeoutError)


async def _ensure_topics(
    settings: Settings, topics: tuple[Topic, ...], *, fix: bool
) -> list[Finding]:
    async with administering(settings) as admin:
        existing = set(await admin.list_topics())
        missing = [topic for topic in topics if settings.topic(topic.name) not in existing]
        shards = await _check_partitions(admin, settings, [t for t in topics if t not in missing])
        if missing:
            await _create(admin, settings, missing, shards)
            log.info("topics created", topics=[topic.name for topic in missing])
            await wait_for_leaders(admin, [settings.topic(topic.name) for topic in missing])
        return await check_topics(admin, settings, topics, fix=fix)


@asynccontextmanager
async def administering(settings: Settings) -> AsyncIterator[AIOKafkaAdminClient]:
    """A client that asks and alters what is on the broker.

    Raises:
        AccessRefused: a password or certificate is wrong.
        KafkaConnectionError: the broker cannot be reached.
    """
    options = client_options(settings)
    admin = AIOKafkaAdminClient(**options)
    try:
        await admin.start()
        yield admin
    except KafkaConnectionError:
        await _check_access(settings, options)
        raise
    finally:
        await admin.close()


async def _check_access(settings: Settings, options: dict[str, Any]) -> None:
    """Say why the broker cannot be reached, where it is there and does not let us in.

    Raises:
        AccessRefused: waiting cannot help.
    """
    try:
        await check_access(settings, options)
    except AccessRefused as refused:
        if refused.certain:
            raise
        log.warning("the broker may not let this worker in", reason=str(refused))


async def _create(
    admin: AIOKafkaAdminClient, settings: Settings, missing: list[Topic], shards: int
) -> None:
    response = await admin.create_topics(
        [
            NewTopic(
                name=settings.topic(topic.name),
                num_partitions=shards
                if topic.partitioning == "shards"
                else partitions_of(topic, settings),
                replication_factor=settings.replication_factor,
                topic_configs={
                    IN_SYNC: str(least_in_sync(settings.replication_factor)),
                    **topic.config,
                },
            )
            for topic in missing
        ]
    )
    for name, code, *rest in response.topic_errors:
        error = for_code(code)
        if code and error is not TopicAlreadyExistsError:
            raise error(f"topic {name} could not be created: {rest[0] if rest else code}")


async def wait_for_leaders(
    admin: AIOKafkaAdminClient, names: Iterable[str], partitions: int = 1
) -> None:
    """A broker answers before what it has made can be written; the first writers would be refused.

    Args:
        admin: a started client.
        names: of topics on the broker.
        partitions: each of them has at least so many.

    Raises:
        LeaderNotAvailableError: not yet; try again.
    """
    wanted = list(names)
    for _ in range(50):
        described = await admin.describe_topics(wanted)
        if all(
            item["error_code"] == 0
            and len(item["partitions"]) >= partitions
            and all(partition["leader"] >= 0 for partition in item["partitions"])
            for item in described
        ):
            return
        await asyncio.sleep(0.1)
    raise LeaderNotAvailableError(f"no leader yet for some of: {', '.join(wanted)}")


async def partition_counts(
    admin: AIOKafkaAdminClient, settings: Settings, topics: Iterable[Topic]
) -> dict[str, int]:
    """How many partitions topics have, by their names on the broker; 0: there is no such topic."""
    names = [settings.topic(topic.name) for topic in topics]
    described = await admin.describe_topics(names) if names else []
    found = {item["topic"]: len(item["partitions"]) for item in described}
    return {name: found.get(name, 0) for name in names}


async def topic_partitions(
    settings: Settings, topics: Iterable[Topic]
) -> dict[str, list[TopicPartition]]:
    """Topic (without prefix) → its partitions: those on the broker, whatever the settings say.

    Raises:
        AccessRefused: a password or certificate is wrong.
        KafkaError: the broker cannot be reached.
    """
    wanted = tuple(topics)
    async with administering(settings) as admin:
        counts = await partition_counts(admin, settings, wanted)
    names = {topic.name: settings.topic(topic.name) for topic in wanted}
    return {
        topic: [TopicPartition(name, number) for number in range(counts[name])]
        for topic, name in names.items()
    }


async def _check_partitions(
    admin: AIOKafkaAdminClient, settings: Settings, topics: list[Topic]
) -> int:
    """Look at the partitions of listed topics; how many a new one of the shards gets."""
    found = await partition_counts(admin, settings, topics)
    if making := [name for name, count in found.items() if count == 0]:
        # It was listed: another broker knows it already, as somebody is just making it.
        raise LeaderNotAvailableError(f"no partitions yet of: {', '.join(making)}")
    of_shards: dict[str, int] = {}
    for topic in topics:
        name, wanted = settings.topic(topic.name), partitions_of(topic, settings)
        if topic.partitioning == "shards":
            of_shards[name] = found[name]
        elif topic.partitioning == "single" and found[name] != wanted:
            raise mismatch(name, found[name], wanted)
    return check_shards(of_shards, settings.partitions)
