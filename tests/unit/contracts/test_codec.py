"""Decoding untrusted bytes: a message, or BadMessage with the reason; nothing else."""

import json
import re

import pytest
from hostile_messages import hostile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shared.contracts.asyncapi import document
from shared.contracts.codec import MAX_MESSAGE_BYTES, BadMessage, decode, decode_many, encode
from shared.contracts.fields import MAX_UNIX_SECONDS, MOST_GROUPS
from shared.contracts.identity import BadUrl, identify
from shared.contracts.layout import MOST_SHARDS
from shared.contracts.messages import (
    Allotment,
    Bandwidth,
    CrawlOutcome,
    Discovery,
    GroupLimit,
    GroupShares,
    Multipliers,
    PageUpdate,
    Signal,
)
from shared.contracts.topics import TOPICS

KINDS = [topic.message for topic in TOPICS if topic.message is not None]
FIELDS = sorted({name for kind in KINDS for name in kind.__struct_fields__})

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["upsert", "remove", "changed", "value", "https://a.example/"])
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
documents = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=5), values, max_size=12)


# What is drawn is decoded as each kind in turn: drawing takes far longer than decoding.
@pytest.mark.slow(1)
@settings(max_examples=300, deadline=None)
@given(data=st.binary(max_size=200) | documents.map(lambda d: json.dumps(d).encode()))
def test_any_bytes_decode_or_are_bad(data):
    for kind in KINDS:
        try:
            message = decode(kind, data)
        except BadMessage:
            continue
        assert decode(kind, encode(message)) == message


def some_for(kind):
    """Values of a batch of a topic: some that can be decoded, and some that nobody should send."""
    bad = st.none() | st.just(b"x" * (MAX_MESSAGE_BYTES + 1)) | st.binary(max_size=50)
    return st.lists(bad | hostile(kind) | hostile(kind), max_size=5)


@pytest.mark.slow(0.5)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(given_values=st.sampled_from(KINDS).flatmap(some_for))
def test_many_are_decoded_as_one_by_one(given_values):
    for kind in KINDS:
        messages, reasons = [], {}
        for index, value in enumerate(given_values):
            try:
                messages.append(decode(kind, value))
            except BadMessage as error:
                reasons[index] = str(error)
        found, bad = decode_many(kind, given_values)
        assert found == messages
        assert {index: str(error) for index, error in bad.items()} == reasons


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1", "1e10", "null"])
def test_numbers_that_are_none_and_rates_that_cannot_be_are_bad(number):
    with pytest.raises(BadMessage):
        decode(Bandwidth, f'{{"crawls_per_second": {number}}}'.encode())


@pytest.mark.parametrize(
    ("kind", "data", "reason"),
    [
        (Signal, None, "tombstone"),
        (Bandwidth, None, "which says nothing on this topic$"),
        (Signal, b" " * (MAX_MESSAGE_BYTES + 1), "at most 65536"),
        (Signal, b"[" * 60_000, "Signal"),
        (Signal, b'{"url": "a", "source": "\\ud800"}', "source"),
        (CrawlOutcome, b'{"url": "a", "crawled_at": 1}', "needs `result` or `digest`"),
        (CrawlOutcome, b'{"url": "a", "crawled_at": 1, "result": "odd"}', "odd"),
        (PageUpdate, b'{"op": "upsert", "url": ""}', "url"),
        (Signal, b'{"url": "a", "source": "ping\\n"}', "source"),
        (GroupLimit, b'{"group": "a.example\\n"}', "group"),
        (PageUpdate, b'{"op": "upsert", "url": "a", "max_age_days": 0}', "max_age_days"),
        (PageUpdate, b'{"op": "upsert", "url": "a", "updated_at": 1.7e12}', "updated_at"),
    ],
)
def test_the_reason_says_what_is_wrong(kind, data, reason):
    with pytest.raises(BadMessage, match=reason):
        decode(kind, data)


@pytest.mark.parametrize(
    ("kind", "said", "field"),
    [
        (Signal, '"source": "s"', "observed_at"),
        (CrawlOutcome, '"result": "failed"', "crawled_at"),
        (PageUpdate, '"op": "upsert"', "updated_at"),
        (PageUpdate, '"op": "upsert"', "crawled_at"),
        (Discovery, '"links": []', "found_at"),
    ],
)
@pytest.mark.parametrize("number", ["1795944747000", "1795944747000.5", "1.795944747e12"])
def test_of_a_time_in_milliseconds_the_reason_says_so(kind, said, field, number):
    data = f'{{"url": "https://a.example/", {said}, "{field}": {number}}}'.encode()
    reason = "Expected Unix seconds, and so large a number looks like milliseconds"
    with pytest.raises(BadMessage, match=rf"{reason} - at `\$\.{field}`$"):
        decode(kind, data)
    assert str(decode_many(kind, [data])[1][0]).endswith(f"{reason} - at `$.{field}`")


def test_no_other_number_has_the_bound_of_times():
    bounded = {
        field
        for schema in document()["components"]["schemas"].values()
        for field, kind in schema["properties"].items()
        if f'"maximum": {MAX_UNIX_SECONDS}' in json.dumps(kind)
    }
    assert {"observed_at", "crawled_at"} <= bounded
    assert all(re.search(r"_(at|until|by)$|^since$", field) for field in bounded), bounded


def test_unknown_fields_pass():
    data = b'{"url": "a", "source": "s", "added_later": {"x": [1]}}'
    assert decode(Signal, data) == Signal("a", "s")


@pytest.mark.parametrize(
    ("shards", "groups"), [(MOST_SHARDS, 0), (64, MOST_GROUPS), (192, MOST_GROUPS)]
)
def test_what_is_said_of_many_shards_and_groups_can_be_read(shards, groups):
    shares = [Allotment(number, 1.0 / 3.0) for number in range(shards)]
    of_groups = [
        GroupShares(f"a-domain-{number}.example", 2.5, 1.7e9, 12.5, shares)
        for number in range(groups)
    ]
    said = Multipliers(1, 1.7e9, 1.7e9, 0.5, 100.0, 0.0, shares, groups=of_groups)
    assert decode(Multipliers, encode(said)) == said


OUTCOME = '{"url": "https://a.example/", "crawled_at": 1.7e9, "result": "failed", %s}'
HALVES = [
    (r"caf\ud83d", "caf\x7f"),
    (r"\uDE00 is the other one", "\x7f is the other one"),
    (r"\ud83d\ud83d\ude00\ude00", "\x7f\U0001f600\x7f"),
    (r"\ud83d\u0041 and \\ud83d and \\\ud83d", "\x7fA and \\ud83d and \\\x7f"),
]
"""JSON may have them (RFC 8259, section 8.2), where a program cut a text. Written, read."""


@pytest.mark.parametrize("name", ["digest", "title"])
@pytest.mark.parametrize(("written", "read"), HALVES)
def test_half_a_character_takes_no_message_with_it_even_in_a_field_that_nobody_reads(
    name, written, read
):
    data = (OUTCOME % f'"{name}": "{written}"').encode()
    whole = decode(CrawlOutcome, b'{"url": "x", "crawled_at": 1, "digest": "d"}')
    assert decode_many(CrawlOutcome, [data, encode(whole)]) == (
        [decode(CrawlOutcome, data), whole],
        {},
    )
    assert decode(CrawlOutcome, data).digest == (read if name == "digest" else None)


def test_half_a_character_is_in_no_url_of_a_page():
    links = b'["https://a.example/caf\\udce9", "https://b.example/"]'
    link = b'{"url": "https://a.example/", "links": %s}' % links
    broken, whole = decode(Discovery, link).links
    assert identify(whole).host == "b.example"
    with pytest.raises(BadUrl):
        identify(broken)


@pytest.mark.parametrize(("written", "status"), [("200.0", 200), ("4.04e2", 404), ("0.0", 0)])
def test_a_whole_number_may_be_written_with_a_point_or_an_exponent(written, status):
    data = (OUTCOME % f'"http_status": {written}, "retry_after_seconds": 1.5').encode()
    outcome = decode(CrawlOutcome, data)
    assert (outcome.http_status, outcome.retry_after_seconds) == (status, 1.5)
    assert isinstance(outcome.http_status, int)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ('"http_status": 200.5', "http_status"),
        ('"http_status": 1e4', "http_status"),
        ('"http_status": 1e300', "http_status"),
        (r'"http_status": "200", "title": "\ud83d"', "http_status"),
        (r'"title": "\ud83', "malformed"),
    ],
)
def test_what_is_bad_besides_is_bad_for_that_reason(said, reason):
    with pytest.raises(BadMessage, match=reason):
        decode(CrawlOutcome, (OUTCOME % said).encode())
