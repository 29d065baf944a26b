"""The contract as an AsyncAPI 3 document, generated from the topics and the messages."""

import json
from typing import Any

import msgspec

from shared.contracts import messages, shares, topics
from shared.contracts.characters import END
from shared.contracts.codec import MAX_MESSAGE_BYTES, most_bytes
from shared.contracts.described import field_descriptions
from shared.contracts.topics import TOPICS, Topic

ASYNCAPI_VERSION = "3.0.0"

CONTRACT_VERSION = "2.4.0"
"""Of the messages: the first number rises when a reader of today could not read tomorrow's."""

_KAFKA_BINDING_VERSION = "0.5.0"
_SCHEMAS = "#/components/schemas/"

_WORKERS = (
    *("ingester", "scheduler", "estimator", "coordinator"),
    *("receiver", "poller", "frontier", "discoverer"),
)

_RAW = {
    topics.DEAD_LETTERS.name: (
        "DeadLetter",
        "Any bytes: the message as it was received, with the headers topic, partition, offset, "
        "stage, error (why it was not taken) and at (Unix seconds).",
    ),
    topics.CLOCK.name: ("ClockProbe", "The instance of a worker that asks for the broker's time."),
}
"""Names and descriptions of messages that are no JSON."""

_TRACED = {
    topics.SIGNALS.name: "of the producer's own trace, where it samples the signal: Freshet may go "
    "on with it",
    topics.PAGE_SIGNALS.name: "of a signal that is traced",
    topics.CRAWL_REQUESTS.name: "of a request that is traced: its outcome carries it back",
    topics.CRAWL_OUTCOMES.name: "of the request that is answered, or of a span below it",
}
"""Topics whose records may carry a trace, and what their header is."""


def document() -> dict[str, Any]:
    """The AsyncAPI document, as plain JSON values.

    The channels carry the topics' names without `FRESHET_TOPIC_PREFIX`. Operations are Freshet's
    own: `receive` where one of its workers reads, `send` where one writes.
    """
    kinds = [topic.message for topic in TOPICS if topic.message is not None]
    _, schemas = msgspec.json.schema_components(kinds, ref_template=_SCHEMAS + "{name}")
    schemas = json.loads(json.dumps(schemas).replace(json.dumps(END)[1:-1], "$"))
    _describe(schemas)
    return {
        "asyncapi": ASYNCAPI_VERSION,
        "info": {
            "title": "Freshet",
            "version": CONTRACT_VERSION,
            "description": (
                "JSON messages on Kafka. Unknown fields pass, wrong ones are refused. Times are "
                "Unix seconds. Host-keyed topics have one partition a shard: "
                "shard = murmur2(host) mod partitions, Kafka's own default for keyed records. "
                f"{_sizes()}"
            ),
        },
        "defaultContentType": "application/json",
        "channels": {topic.name: _channel(topic) for topic in TOPICS},
        "operations": {name: body for topic in TOPICS for name, body in _operations(topic)},
        "components": {
            "schemas": schemas,
            "messages": {topic.name: _message(topic) for topic in TOPICS},
        },
    }


def _sizes() -> str:
    """How long a message may be."""
    sizes = {t.name: most_bytes(t.message) for t in TOPICS if t.message is not None}
    longer = [
        f"{size // 1024} KiB of `{name}`"
        for name, size in sizes.items()
        if size != MAX_MESSAGE_BYTES
    ]
    return (
        f"A message has {MAX_MESSAGE_BYTES // 1024} KiB at most; it may have {', '.join(longer)}."
    )


def _describe(schemas: dict[str, Any]) -> None:
    """Put what the source says of a message, and of each field, into its schema."""
    for name, schema in schemas.items():
        schema["description"] = " ".join(schema["description"].split())
        kind = getattr(messages, name, None) or getattr(shares, name)
        names = {field.name: field.encode_name for field in msgspec.structs.fields(kind)}
        for field, text in field_descriptions(kind).items():
            schema["properties"][names[field]]["description"] = text


def _channel(topic: Topic) -> dict[str, Any]:
    partitions = {
        "shards": "one partition a shard (FRESHET_PARTITIONS)",
        "single": "one partition",
        "any": "any number of partitions",
    }[topic.partitioning]
    kafka: dict[str, Any] = {
        "bindingVersion": _KAFKA_BINDING_VERSION,
        "topicConfiguration": _configuration(topic.config),
    }
    if topic.partitioning == "single":
        kafka["partitions"] = 1
    return {
        "address": topic.name,
        "description": f"{topic.written_by} → {topic.read_by}; key: {topic.key}; {partitions}.",
        "messages": {topic.name: {"$ref": f"#/components/messages/{topic.name}"}},
        "bindings": {"kafka": kafka},
    }


def _configuration(config: dict[str, str]) -> dict[str, Any]:
    """The part of a topic's configuration that the binding has words for."""
    shown: dict[str, Any] = {"cleanup.policy": config["cleanup.policy"].split(",")}
    if "retention.ms" in config:
        shown["retention.ms"] = int(config["retention.ms"])
    return shown


def _message(topic: Topic) -> dict[str, Any]:
    key: dict[str, Any] = {"type": "string", "description": topic.key}
    if topic.message is None:
        name, description = _RAW[topic.name]
        return {
            "name": name,
            "contentType": "application/octet-stream",
            "description": description,
            "payload": {},
        }
    binding = {"key": key, "bindingVersion": _KAFKA_BINDING_VERSION}
    message = {
        "name": topic.message.__name__,
        "contentType": "application/json",
        "payload": {"$ref": _SCHEMAS + topic.message.__name__},
        "bindings": {"kafka": binding},
    }
    return message | ({"headers": _trace_header(topic)} if topic.name in _TRACED else {})


def _trace_header(topic: Topic) -> dict[str, Any]:
    said = f"W3C Trace Context, optional: {_TRACED[topic.name]}."
    header = {"type": "string", "description": said, "maxLength": 256}
    return {"type": "object", "properties": {"traceparent": header}}


def _operations(topic: Topic) -> list[tuple[str, dict[str, Any]]]:
    channel = {"$ref": f"#/channels/{topic.name}"}
    operations = []
    if _by_us(topic.read_by):
        summary = {"action": "receive", "channel": channel, "summary": f"Read by {topic.read_by}."}
        operations.append((f"receive-{topic.name}", summary))
    if _by_us(topic.written_by) or topic is topics.DEAD_LETTERS:
        summary = {"action": "send", "channel": channel, "summary": f"From {topic.written_by}."}
        operations.append((f"send-{topic.name}", summary))
    return operations


def _by_us(who: str) -> bool:
    return any(name in who for name in _WORKERS)
