"""What links a batch has, whoever wrote it."""

import json
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from services.discoverer.taking import NO_DEPTH, take
from shared.contracts.codec import MAX_LARGE_BYTES, encode
from shared.contracts.messages import MAX_LINKS, CrawlOutcome, Discovery

OUTCOMES, DISCOVERIES = "crawl-outcomes", "discoveries"
PAGE = "https://a.example/"


def record(topic, value, at=100.0):
    return SimpleNamespace(topic=topic, value=value, timestamp=round(1000 * at))


def taken_of(*records, now=1000.0, record_times_count=True):
    return take(records, OUTCOMES, now, record_times_count=record_times_count)


def links_of(*records, **more):
    return {url: link[1:] for url, link in taken_of(*records, **more).links.items()}


def test_links_are_one_further_from_the_beginning_than_their_page():
    value = encode(Discovery(PAGE, ["https://b.example/"], 90.0, 2))
    assert links_of(record(DISCOVERIES, value)) == {"https://b.example/": (3, 90.0)}
    value = encode(Discovery(PAGE, ["https://b.example/"]))
    assert links_of(record(DISCOVERIES, value)) == {"https://b.example/": (None, 100.0)}


def test_a_link_is_of_its_arrival_at_the_latest_and_never_of_the_future():
    ahead = encode(Discovery(PAGE, ["https://b.example/"], 9e9))
    assert links_of(record(DISCOVERIES, ahead)) == {"https://b.example/": (None, 100.0)}
    assert links_of(record(DISCOVERIES, ahead, at=9e9)) == {"https://b.example/": (None, 1000.0)}
    assert links_of(record(DISCOVERIES, ahead), record_times_count=False) == {
        "https://b.example/": (None, 1000.0)
    }


def test_a_link_that_comes_often_is_taken_once_by_its_shortest_way_at_its_first_time():
    records = [
        record(DISCOVERIES, encode(Discovery(PAGE, ["x", "y", "x"], at, depth)))
        for at, depth in [(90.0, 5), (80.0, None), (95.0, 2)]
    ]
    taken = taken_of(*records)
    assert links_of(*records) == {"x": (3, 80.0), "y": (3, 80.0)}
    assert taken.read == {DISCOVERIES: 9}


def test_where_outcomes_lead_is_a_link_and_the_others_say_nothing():
    led = CrawlOutcome(PAGE, 90.0, result="redirected", redirected_to="https://b.example/")
    named = CrawlOutcome(PAGE, 90.0, result="canonical", canonical_url="https://c.example/")
    spaced = json.dumps(
        {
            "url": PAGE,
            "crawled_at": 90,
            "result": "redirected",
            "redirected_to": "https://d.example/",
        },
        indent=2,
    ).encode()
    others = [
        encode(CrawlOutcome(PAGE, 90.0, result="changed")),
        encode(CrawlOutcome(PAGE, 90.0, result="redirected")),
        b'{"redirected_to": "https://x.example/"}',  # no outcome: for others to set aside
        b'{"redirected_to": "',
        b"rubbish",
        None,
    ]
    values = [encode(led), encode(named), spaced, *others]
    taken = taken_of(*(record(OUTCOMES, value) for value in values))
    assert {url: link.depth for url, link in taken.links.items()} == {
        f"https://{host}.example/": NO_DEPTH for host in "bcd"
    }
    assert taken.read == {OUTCOMES: 3}
    # They are no messages to this worker: none is counted, and none set aside.
    assert (taken.messages, taken.refused) == (0, [])


def test_bad_messages_are_refused_with_the_reason_and_the_others_count():
    good = encode(Discovery(PAGE, ["https://b.example/", "not a url", "x" * 5000]))
    long = json.dumps({"url": PAGE, "links": ["x" * 2048] * MAX_LINKS}).encode()
    bad = {
        b"rubbish": "not a valid Discovery",
        b'{"url": "https://a.example/"}': "links",
        b'{"url": "https://a.example/", "links": "x"}': "links",
        b'{"url": "https://a.example/", "links": [1]}': "links",
        b'{"url": "mailto:x@a.example", "links": []}': "only http and https",
        b'{"url": "https://a.example/", "links": [], "depth": -1}': "depth",
        encode(Discovery(PAGE, ["x"] * (MAX_LINKS + 1))): "links",
        long: f"at most {MAX_LARGE_BYTES} are read",
        None: "tombstone",
    }
    taken = taken_of(*(record(DISCOVERIES, value) for value in [*bad, good]))
    assert [was.value for was, _ in taken.refused] == list(bad)
    for (_, reason), said in zip(taken.refused, bad.values(), strict=True):
        assert said in reason
    assert list(taken.links) == ["https://b.example/", "not a url", "x" * 5000]
    assert taken.messages == len(bad) + 1


def test_a_message_may_be_longer_than_others_where_it_has_many_links():
    links = [f"https://a.example/{n:04}{'x' * 900}" for n in range(MAX_LINKS)]
    value = encode(Discovery(PAGE, links))
    assert 64 * 1024 < len(value) < MAX_LARGE_BYTES
    assert len(taken_of(record(DISCOVERIES, value)).links) == MAX_LINKS


@given(st.binary(max_size=80), st.sampled_from([OUTCOMES, DISCOVERIES]))
def test_anything_at_all_is_taken_or_refused(value, topic):
    taken = taken_of(record(topic, value), record(DISCOVERIES, encode(Discovery(PAGE, ["x"]))))
    assert "x" in taken.links
    assert len(taken.refused) <= 1
