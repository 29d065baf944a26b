"""Metadata, topics, configs and producer ids."""

import sqlite3
from collections.abc import Iterable
from typing import Any, Self

from deploy.local.broker.config import DEFAULTS
from deploy.local.broker.protocol import ErrorCode, RequestError
from deploy.local.broker.store import MetadataStore
from deploy.local.broker.topics import Topics

NODE_ID = 1
"""The only broker's number."""
_TOPIC_RESOURCE = 2
_SOURCE_TOPIC, _SOURCE_DEFAULT = 1, 5
_DEFAULT_PARTITIONS = 1


def metadata(
    request: Any, version: int, topics: Topics, cluster_id: str, address: tuple[str, int]
) -> tuple[Any, ...]:
    """Answer which topics there are, and that this broker leads every partition."""
    asked = request.topics
    everything = asked is None or (version == 0 and not asked)
    names = [topic.row.name for topic in topics] if everything else asked
    described = [_describe(name, version, topics) for name in names]
    host, port = address
    brokers = [(NODE_ID, host, port, None) if version else (NODE_ID, host, port)]
    if version == 0:
        return brokers, described
    if version == 1:
        return brokers, NODE_ID, described
    answer = (brokers, cluster_id, NODE_ID, described)
    return answer if version == 2 else (0, *answer)


def _describe(name: str, version: int, topics: Topics) -> tuple[Any, ...]:
    topic = topics.get(name)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else ErrorCode.NONE
    offline: tuple[Any, ...] = ([],) if version >= 5 else ()
    partitions = [
        (ErrorCode.NONE, number, NODE_ID, [NODE_ID], [NODE_ID], *offline)
        for number in range(len(topic.logs) if topic else 0)
    ]
    return (error, name, partitions) if version == 0 else (error, name, False, partitions)


def create_topics(request: Any, version: int, topics: Topics) -> tuple[Any, ...]:
    """Create topics, or only check whether it could be done."""
    validate_only = version >= 1 and request.validate_only
    answers = []
    for name, partitions, replicas, assignment, configs in request.create_topic_requests or ():
        overrides = {key: value for key, value in configs or () if value is not None}
        with _Outcome() as outcome:
            count = _partition_count(partitions, replicas, assignment)
            topics.create(name, count, overrides, validate_only=validate_only)
        error, message = outcome.code, outcome.message
        answers.append((name, error, message) if version >= 1 else (name, error))
    return (answers,) if version < 2 else (0, answers)


def _partition_count(partitions: int, replicas: int, assignment: list[Any] | None) -> int:
    if assignment:
        if any(list(replica_ids or ()) != [NODE_ID] for _, replica_ids in assignment):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the only broker is number {NODE_ID}"
            )
        return len(assignment)
    if replicas not in (-1, 1):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"{replicas} replicas, but there is one broker"
        )
    return _DEFAULT_PARTITIONS if partitions == -1 else partitions


def create_partitions(request: Any, topics: Topics) -> tuple[Any, ...]:
    """Add partitions to topics."""
    answers = []
    for name, (count, _) in request.topic_partitions or ():
        with _Outcome() as outcome:
            topics.add_partitions(name, count, validate_only=request.validate_only)
        answers.append((name, outcome.code, outcome.message))
    return 0, answers


def delete_topics(request: Any, version: int, topics: Topics) -> tuple[Any, ...]:
    """Delete topics."""
    answers = []
    for name in request.topics or ():
        with _Outcome() as outcome:
            topics.delete(name)
        answers.append((name, outcome.code))
    return (answers,) if version < 1 else (0, answers)


class _Outcome:
    """Turns what its block raises into the code and message of an answer."""

    def __init__(self) -> None:
        self.code = ErrorCode.NONE
        self.message: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> bool:
        if isinstance(error, RequestError):
            self.code, self.message = error.code, str(error)
        elif isinstance(error, (OSError, sqlite3.Error)):
            self.code = ErrorCode.KAFKA_STORAGE_ERROR
            self.message = f"the broker's disk failed: {error}"
        return error is None or self.code is not ErrorCode.NONE


def describe_configs(request: Any, version: int, topics: Topics) -> tuple[Any, ...]:
    """Answer the settings of topics; the broker itself has none that a client could see."""
    answers: list[tuple[Any, ...]] = []
    for kind, name, wanted in request.resources or ():
        topic = topics.get(name)
        if kind != _TOPIC_RESOURCE:
            answers.append((ErrorCode.NONE, None, kind, name, []))
        elif topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append((error, f"no topic {name}", kind, name, []))
        else:
            entries = list(_config_entries(topic.row.config, wanted, version))
            answers.append((ErrorCode.NONE, None, kind, name, entries))
    return 0, answers


def _config_entries(
    overrides: dict[str, str], wanted: list[str] | None, version: int
) -> Iterable[tuple[Any, ...]]:
    for name, default in DEFAULTS.items():
        if wanted is not None and name not in wanted:
            continue
        own = name in overrides
        value = overrides.get(name, default)
        if version == 0:
            yield name, value, False, not own, False
        else:
            yield name, value, False, _SOURCE_TOPIC if own else _SOURCE_DEFAULT, False, []


def alter_configs(request: Any, topics: Topics) -> tuple[Any, ...]:
    """Replace all that was set for topics, or only check whether it could be done."""
    answers = []
    for kind, name, entries in request.resources or ():
        overrides = {key: value for key, value in entries or () if value is not None}
        with _Outcome() as outcome:
            if kind != _TOPIC_RESOURCE:
                raise RequestError(ErrorCode.INVALID_REQUEST, "only topics have settings here")
            topics.configure(name, overrides, validate_only=request.validate_only)
        answers.append((outcome.code, outcome.message, kind, name))
    return 0, answers


def init_producer_id(request: Any, store: MetadataStore) -> tuple[Any, ...]:
    """Give an idempotent producer its id; a transactional one is refused."""
    if request.transactional_id is not None:
        return 0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1
    try:
        return 0, ErrorCode.NONE, store.new_producer_id(), 0
    except sqlite3.Error:
        return 0, ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1
