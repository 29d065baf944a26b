"""Texts of messages have but the characters that the contract allows, wherever they stand."""

import json
from copy import deepcopy

import msgspec
import pytest

from shared.contracts.asyncapi import document
from shared.contracts.codec import BadMessage, decode, decode_many, encode
from shared.contracts.messages import (
    CrawlOutcome,
    CrawlRequest,
    DemandCurve,
    GroupLimit,
    GroupShares,
    HostLimit,
    HostParameters,
    Multipliers,
    PageParameters,
    PageSignal,
    PageUpdate,
    Signal,
)
from shared.contracts.reported import GroupPages
from shared.contracts.shares import DefaultShares, DividedGroup, NamedPages

URL, HOST, TIME = "https://a.example/", "a.example", 1.7e9
MESSAGES = [
    Signal(URL, "feed"),
    PageSignal(1, URL, HOST, "feed", TIME),
    CrawlRequest("1-2-3", 1, URL, HOST, TIME, TIME, 1.0, 1.0, "new"),
    CrawlOutcome(URL, TIME, result="changed", group="203.0.113.7"),
    PageUpdate("upsert", URL, page_class="news"),
    PageParameters(1, HOST, None, None, 0.5, TIME),
    HostParameters(
        HOST, 0.5, 0.5, ["feed", "ping"], [1.0] * 4, [1.0] * 6, TIME, group="203.0.113.7"
    ),
    HostLimit(HOST),
    GroupLimit(HOST),
    DemandCurve(
        *(1, "one", TIME, 1, [1.0], [1.0], [1.0], 1.0, 0.0, 1.0),
        groups=[GroupPages("b.example", 1), GroupPages(HOST, 1)],
        named=[NamedPages("203.0.113.7", 1)],
    ),
    Multipliers(
        *(1, TIME, TIME, 0.5, 100.0, 0.0, []),
        groups=[GroupShares(HOST, 1.0, TIME, 0.0, [])],
        default_groups=DefaultShares(
            *(1.0, TIME, 0.0, 1), divided=[DividedGroup("203.0.113.7", [], [])]
        ),
    ),
]
"""All kinds that have such texts, with all of them."""

SCHEMAS = document()["components"]["schemas"]


def places_in(name, schema, said, path=()):
    """Where a message has texts of certain characters, as its published schema says: the names of
    the schema and of the field, and the path to it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from places_in(name, SCHEMAS[name], said, path)
    for part in schema.get("anyOf", []):
        if said is not None and part.get("type") != "null":
            yield from places_in(name, part, said, path)
    if "pattern" in schema:
        yield name, next(step for step in reversed(path) if isinstance(step, str)), path
    for number, inner in enumerate(said if "items" in schema else []):
        yield from places_in(name, schema["items"], inner, (*path, number))
    for field, inner in schema.get("properties", {}).items():
        if isinstance(said, dict) and field in said:
            yield from places_in(name, inner, said[field], (*path, field))


def with_more(said, path, more):
    """A message with something after one of its texts."""
    other = deepcopy(said)
    inner = other
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] += more
    return other


PLACES = [
    (type(message), said, *place)
    for message in MESSAGES
    for said in [msgspec.to_builtins(message)]
    for place in places_in(type(message).__name__, SCHEMAS[type(message).__name__], said)
]
CASES = [
    pytest.param(kind, said, path, id=f"{kind.__name__} {path}")
    for kind, said, _, _, path in PLACES
]


def test_all_texts_that_the_contract_bounds_so_are_looked_at_here():
    assert {(name, field) for _, _, name, field, _ in PLACES} == {
        (name, field)
        for name, schema in SCHEMAS.items()
        for field, kind in schema["properties"].items()
        if '"pattern"' in json.dumps(kind)
    }


@pytest.mark.parametrize("more", ["\n", "\x00", "\x7f", "\x1f"])
@pytest.mark.parametrize(("kind", "said", "path"), CASES)
def test_a_text_with_another_character_is_refused_and_named(kind, said, path, more):
    good, bad = json.dumps(said).encode(), json.dumps(with_more(said, path, more)).encode()
    with pytest.raises(BadMessage, match=f"not a valid {kind.__name__}: .*{path[0]}"):
        decode(kind, bad)
    messages, refused = decode_many(kind, [good, bad, good])
    assert [encode(message) for message in messages] == 2 * [encode(decode(kind, good))]
    assert list(refused) == [1]


@pytest.mark.parametrize(
    ("message", "field", "text", "allowed"),
    [
        (PageUpdate("upsert", URL), "class", "News", "only a-z, 0-9, `.`, `_` and `-`"),
        (CrawlOutcome(URL, TIME, result="changed"), "group", "my pop", "only visible ASCII"),
        (CrawlOutcome(URL, TIME, result="changed"), "group", "münchen", "only visible ASCII"),
        (GroupLimit(HOST), "group", "a b.example", "neither spaces nor control characters"),
        (Signal(URL, "feed"), "source", "a\tfeed", "no control characters"),
    ],
)
def test_the_reason_says_which_characters_a_text_may_have(message, field, text, allowed):
    said = json.dumps(msgspec.to_builtins(message) | {field: text}).encode()
    with pytest.raises(BadMessage) as bad:
        decode(type(message), said)
    assert f"Expected `str` with {allowed}" in str(bad.value)
    assert str(bad.value).endswith(f" - at `$.{field}`")


@pytest.mark.parametrize(("kind", "said", "path"), CASES)
def test_others_are_taken(kind, said, path):
    assert decode(kind, json.dumps(with_more(said, path, "0")).encode())
