"""What crawlers report of known URLs is understood, however they say it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.frontier.api.urlfrontier_pb2 import StringList, URLInfo
from services.frontier.outcomes import crawled_at_of, found_of, plain
from shared.contracts.codec import decode, encode
from shared.contracts.messages import CrawlOutcome

NOW = 1.7e9

CASES = {
    "its own word": ({"freshet.result": "unchanged", "fetch.statusCode": "200"}, "unchanged", None),
    "its own digest": ({"freshet.digest": "d", "signature": "s"}, None, "d"),
    "StormCrawler's digest": ({"signature": "s", "fetch.statusCode": "200"}, None, "s"),
    "304": ({"fetch.statusCode": "304", "signature": "s"}, "unchanged", None),
    "404": ({"fetch.statusCode": "404"}, "gone", None),
    "410": ({"freshet.status": "410"}, "gone", None),
    "503": ({"fetch.statusCode": "503"}, "failed", None),
    "a redirect": ({"fetch.statusCode": "301", "_redirTo": "https://b/"}, None, "to https://b/"),
    "a redirect to nowhere": ({"fetch.statusCode": "301"}, "failed", None),
    "no answer": ({"fetch.exception": "SocketTimeoutException"}, "failed", None),
    "a bad parse": ({"fetch.statusCode": "200", "error.cause": "tika"}, "failed", None),
    "a made-up result": ({"freshet.result": "splendid", "signature": "s"}, None, "s"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_crawl(name):
    metadata, result, digest = CASES[name]
    found = found_of(metadata, 1, NOW)
    assert (found.result, found.digest, found.is_clear) == (result, digest, True)


def test_a_crawler_that_wants_a_url_never_again_has_given_it_up():
    assert found_of({}, 0, NOW).result == "gone"
    assert found_of({"error.cause": "ROBOTS_TXT"}, 0, NOW).result == "gone"
    # But not where it has read it, or only its host is in trouble.
    assert found_of({"signature": "s"}, 0, NOW).digest == "s"
    assert found_of({"fetch.statusCode": "503"}, 0, NOW).result == "failed"


def test_a_crawler_that_says_nothing_of_the_content_may_have_seen_a_change():
    found = found_of({"fetch.statusCode": "200"}, 1, NOW)
    assert (found.result, found.is_clear) == ("changed", False)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("120", 120.0),
        ("9" * 30, 1e9),
        ("Tue, 14 Nov 2023 22:14:20 GMT", 60.0),
        ("Tue, 14 Nov 2000 22:14:20 GMT", 0.0),
        ("soon", None),
        ("-1", None),
        ("²", None),
    ],
)
def test_a_host_asks_to_be_left_alone_in_seconds_or_until_a_date(text, seconds):
    metadata = {"fetch.statusCode": "429", "protocol.retry-after": text}
    assert found_of(metadata, 1, NOW).retry_after_seconds == seconds


def test_a_page_was_read_when_it_was_handed_out_or_as_its_crawler_says():
    assert crawled_at_of({}, NOW - 9, NOW) == NOW - 9
    assert crawled_at_of({}, None, NOW) == NOW
    assert crawled_at_of({"freshet.crawled-at": str(NOW - 2)}, NOW - 9, NOW) == NOW - 2
    for impossible in (NOW + 1, NOW - 10, "nan", "-inf", "then"):
        assert crawled_at_of({"freshet.crawled-at": str(impossible)}, NOW - 9, NOW) == NOW - 9


KEYS = ["freshet.result", "freshet.digest", "freshet.status", "fetch.statusCode", "retry-after"]
KEYS += ["_redirTo", "error.cause", "freshet.crawled-at"]


@given(
    st.dictionaries(st.sampled_from(KEYS), st.lists(st.text(max_size=400), max_size=2)),
    st.integers(0, 2**64 - 1),
)
def test_whatever_is_said_it_makes_a_message_that_is_read(said, refetch):
    info = URLInfo(metadata={key: StringList(values=values) for key, values in said.items()})
    metadata = plain(info.metadata)
    found = found_of(metadata, refetch, NOW)
    at = crawled_at_of(metadata, NOW - 9, NOW)
    outcome = CrawlOutcome("https://a.example/", at, "a.example", None, *found[:4])
    assert decode(CrawlOutcome, encode(outcome)) == outcome
