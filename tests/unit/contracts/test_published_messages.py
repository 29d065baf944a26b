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
        known = dict(now["properties"][field])
        if "enum" in schema:
            assert set(schema["enum"]) <= set(known["enum"])
            known["enum"] = schema["enum"]
        assert known == plain(schema), field


def test_what_crawlers_and_operators_may_write_with_words_is_as_it_was():
    """Workers of the last release refuse a word that they do not know: so none is added."""
    for release in PUBLISHED:
        for name, field in (("CrawlOutcome", "result"), ("PageUpdate", "op")):
            before = plain(release["schemas"][name]["properties"][field])
            assert TODAY[name]["properties"][field] == before
