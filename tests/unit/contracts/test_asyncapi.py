"""The AsyncAPI document says what the topics say, and all its references lead somewhere."""

import re
from pathlib import Path

from shared.contracts.asyncapi import document
from shared.contracts.codec import MAX_MESSAGE_BYTES, most_bytes
from shared.contracts.topics import TOPICS


def references(node):
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "$ref":
                yield value
            else:
                yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def resolve(root, reference):
    for part in reference.removeprefix("#/").split("/"):
        root = root[part]
    return root


def test_every_topic_is_a_channel_with_its_message():
    made = document()
    assert made["asyncapi"].startswith("3.")
    assert set(made["channels"]) == {topic.name for topic in TOPICS}
    for topic in TOPICS:
        [reference] = references(made["channels"][topic.name]["messages"])
        message = resolve(made, reference)
        if topic.message is not None:
            schema = resolve(made, message["payload"]["$ref"])
            assert set(schema["properties"]) == set(topic.message.__struct_encode_fields__)


def test_all_references_lead_somewhere():
    made = document()
    found = set(references(made))
    assert len(found) > len(TOPICS)
    assert all(resolve(made, reference) for reference in found)


def test_operations_are_those_of_the_workers():
    operations = document()["operations"]
    assert {n for n, o in operations.items() if o["action"] == "receive"} == {
        f"receive-{topic.name}" for topic in TOPICS if topic.name not in {"dead-letters", "clock"}
    }
    assert "send-bandwidth" not in operations
    # Those of the receiver, the poller and the frontier, beside everybody else's.
    edges = {"send-signals", "send-page-updates", "send-crawl-outcomes", "send-host-limits"}
    assert {"send-crawl-requests", "send-clock"} | edges <= set(operations)


def test_fields_are_described_as_in_the_source():
    schemas = document()["components"]["schemas"]
    deadline = schemas["CrawlRequest"]["properties"]["deadline_at"]
    assert deadline["description"] == (
        "Without an outcome by then, the crawl counts as failed, and is tried again later."
    )
    assert "description" not in schemas["CrawlRequest"]["properties"]["host"]
    assert not any("\n" in schema["description"] for schema in schemas.values())


def test_how_long_a_message_may_be_is_said():
    said = document()["info"]["description"]
    assert f"A message has {MAX_MESSAGE_BYTES // 1024} KiB at most; " in said
    sizes = {topic.name: most_bytes(topic.message) for topic in TOPICS if topic.message}
    told = {name: int(size) * 1024 for size, name in re.findall(r"(\d+) KiB of `([\w-]+)`", said)}
    assert told == {name: size for name, size in sizes.items() if size != MAX_MESSAGE_BYTES}
    text = (Path(__file__).parents[3] / "docs/connect/index.md").read_text()
    assert f"of {MAX_MESSAGE_BYTES // 1024} KiB at most" in text
    assert f"`discoveries` may have {sizes['discoveries'] // 1024**2} MiB" in text
