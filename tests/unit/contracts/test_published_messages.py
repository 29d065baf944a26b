"""What releases have published is read today as it was meant: fields are added, none is changed.

`published/` has the schemas of each release, and samples that its own code has read. A release adds
its file there, and none is ever altered.
"""

import json
from pathlib import Path

import msgspec
import pytest

from shared.contracts import messages
from shared.contracts.asyncapi import document
from shared.contracts.codec import decode

PUBLISHED = [
    json.loads(file.read_text())
    for file in sorted((Path(__file__).parent / "published").glob("*.json"))
]
RELEASES = [release["version"] for release in PUBLISHED]
KINDS = [
    pytest.param(release, name, id=f"{release['version']} {name}")
    for release in PUBLISHED
    for name in release["schemas"]
]
SAMPLES = [
    pytest.param(name, sample, id=f"{release['version']} {name} {number}")
    for release in PUBLISHED
    for name, message in release["messages"].items()
    for number, sample in enumerate(message["samples"])
]


def plain(schema):
    """A schema without what is said for people, and where its parts stand."""
    if isinstance(schema, dict):
        said = ("description", "title")
        return {key: plain(value) for key, value in schema.items() if key not in said}
    if isinstance(schema, list):
        return [plain(value) for value in schema]
    return schema.rpartition("/")[2] if isinstance(schema, str) else schema


TODAY = plain(document()["components"]["schemas"])


def words(schema):
    """The words that a field may have, absent or not."""
    return {word for part in schema.get("anyOf", [schema]) for word in part.get("enum", [])}


LIFTED = {"retry_after_seconds", "crawl_delay_seconds"}
"""Fields that say what servers chose: they had a bound beyond which the message was refused, and
take more now. Workers of before still refuse it."""


def lifted(schema):
    """A published field without the most that it may be."""
    parts = [{k: v for k, v in part.items() if k != "maximum"} for part in schema["anyOf"]]
    return {**schema, "anyOf": parts}


def without_words(schema):
    """What else is said of a field."""
    parts = [{**part, "enum": 1 if "enum" in part else 0} for part in schema.get("anyOf", [schema])]
    return [parts, schema.get("default")] if "anyOf" in schema else parts


def test_the_releases_are_all_there():
    assert RELEASES == ["0.1.0", "0.2.0"]


@pytest.mark.parametrize(("name", "sample"), SAMPLES)
def test_a_message_of_a_release_means_what_it_meant(name, sample):
    read = decode(getattr(messages, name), json.dumps(sample["written"]).encode())
    today = msgspec.to_builtins(read)
    assert {field: today[field] for field in sample["means"]} == sample["means"]
    # What is new says nothing where nobody says anything.
    kind = getattr(messages, name)
    added = set(today) - set(sample["means"])
    defaults = {field.name: field for field in msgspec.structs.fields(kind)}
    for field in added:
        assert not defaults[field].required
        default = defaults[field].default
        if default is msgspec.NODEFAULT:
            default = defaults[field].default_factory()
        assert today[field] == msgspec.to_builtins(default)


@pytest.mark.parametrize(("release", "name"), KINDS)
def test_fields_are_only_added(release, name):
    before, now = release["schemas"][name], TODAY[name]
    assert set(now["required"]) == set(before["required"])
    for field, schema in before["properties"].items():
        known = now["properties"][field]
        assert words(schema) <= words(known)
        meant = lifted(schema) if field in LIFTED else schema
        assert without_words(known) == without_words(plain(meant)), field


ADDED = {
    ("CrawlOutcome", "result"): {"not_modified", "redirected", "canonical", "disallowed"},
    ("PageUpdate", "op"): set(),
}
"""Words since the last release. Its workers refuse them, so estimators and schedulers are upgraded
before whoever writes them: [the upgrade](docs/operate/index.md#to-upgrade) says so."""


@pytest.mark.parametrize(("name", "field"), ADDED)
def test_words_that_crawlers_and_operators_may_write_are_added_on_purpose(name, field):
    before, now = PUBLISHED[-1]["schemas"][name]["properties"][field], TODAY[name]["properties"]
    assert words(now[field]) - words(before) == ADDED[name, field]
    assert words(before) <= words(now[field])
