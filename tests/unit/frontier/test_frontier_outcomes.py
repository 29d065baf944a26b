"""What crawlers report of known URLs is understood, however they say it."""

import time
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.frontier.api.urlfrontier_pb2 import StringList, URLInfo
from services.frontier.outcomes import (
    crawled_at_of,
    found_of,
    given_at_of,
    group_of,
    plain,
)
from shared.contracts.codec import decode, encode
from shared.contracts.messages import CrawlOutcome, Result
from shared.contracts.request_ids import microseconds, request_id_of, requested_at_of
from shared.rules.page_events import elsewhere_to_themselves

NOW = 1.7e9
URL = "https://a.example/x/y"

CASES = {
    "its own word": ({"freshet.result": "unchanged", "fetch.statusCode": "200"}, "unchanged", None),
    "its own digest": ({"freshet.digest": "d", "signature": "s"}, None, "d"),
    "StormCrawler's digest": ({"signature": "s", "fetch.statusCode": "200"}, None, "s"),
    "304": ({"fetch.statusCode": "304", "signature": "s"}, "not_modified", None),
    "404": ({"fetch.statusCode": "404"}, "gone", None),
    "410": ({"freshet.status": "410"}, "gone", None),
    "503": ({"fetch.statusCode": "503"}, "failed", None),
    "a redirect": ({"fetch.statusCode": "301", "_redirTo": "https://b/"}, "redirected", None),
    "a redirect to itself": ({"fetch.statusCode": "302", "_redirTo": "y#x"}, "failed", None),
    "robots.txt": ({"error.cause": "robots.txt"}, "disallowed", None),
    "its own word for a redirect": (
        {"freshet.result": "redirected", "signature": "s"},
        "redirected",
        None,
    ),
    "a redirect to nowhere": ({"fetch.statusCode": "301"}, "failed", None),
    "no answer": ({"fetch.exception": "SocketTimeoutException"}, "failed", None),
    "a bad parse": ({"fetch.statusCode": "200", "error.cause": "tika"}, "failed", None),
    "a made-up result": ({"freshet.result": "splendid", "signature": "s"}, None, "s"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_said_of_a_crawl(name):
    metadata, result, digest = CASES[name]
    found = found_of(URL, metadata, 1, NOW)
    assert (found.result, found.digest, found.is_clear) == (result, digest, True)


@pytest.mark.parametrize(
    ("written", "target"),
    [
        ("https://b.example/", "https://b.example/"),
        ("../z?q=1", "https://a.example/z?q=1"),
        ("//b.example", "https://b.example/"),
        ("mailto:you", "mailto:you"),
        ("https://", None),
        ("/" + "z" * 2048, None),
    ],
)
def test_where_a_page_leads_to_is_told_from_its_own_address_on(written, target):
    metadata = {"fetch.statusCode": "308", "_redirTo": written}
    found = found_of(URL, metadata, 1, NOW)
    assert (found.result, found.redirected_to, found.canonical_url) == ("redirected", target, None)
    metadata = {"freshet.result": "canonical", "freshet.canonical-url": written}
    found = found_of(URL, metadata, 1, NOW)
    assert (found.result, found.redirected_to, found.canonical_url) == ("canonical", None, target)


def test_a_crawler_that_wants_a_url_never_again_has_given_it_up():
    assert found_of(URL, {}, 0, NOW).result == "gone"
    assert found_of(URL, {"error.cause": "malformed URL"}, 0, NOW).result == "gone"
    assert found_of(URL, {"error.cause": "robots.txt"}, 0, NOW).result == "disallowed"
    # But not where it has read it, or only its host is in trouble.
    assert found_of(URL, {"signature": "s"}, 0, NOW).digest == "s"
    assert found_of(URL, {"fetch.statusCode": "503"}, 0, NOW).result == "failed"
    for said in ({"fetch.statusCode": "200"}, {"signature": "s"}):
        found = found_of(URL, said | {"error.cause": "cannot be parsed"}, 0, NOW)
        assert (found.result, found.is_clear) == ("failed", True)


def test_a_crawler_that_says_nothing_of_the_content_may_have_seen_a_change():
    found = found_of(URL, {"fetch.statusCode": "200"}, 1, NOW)
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
    assert found_of(URL, metadata, 1, NOW).retry_after_seconds == seconds


@pytest.fixture(params=["UTC", "Asia/Tokyo", "America/Lima"])
def _zone(request, monkeypatch):
    """This machine's time zone; nothing that is read goes by it."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("_zone")
@pytest.mark.parametrize(
    "text",
    [
        "Tue, 14 Nov 2023 22:14:20 GMT",
        "Tue, 14 Nov 2023 22:14:20 -0000",
        # As C writes it, and RFC 9110 wants it to be read: by UTC.
        "Tue Nov 14 22:14:20 2023",
    ],
)
def test_a_date_is_the_same_wherever_this_machine_is(text):
    metadata = {"fetch.statusCode": "503", "retry-after": text}
    assert found_of(URL, metadata, 1, NOW).retry_after_seconds == 60.0


def test_a_page_was_read_when_it_was_handed_out_or_as_its_crawler_says():
    assert crawled_at_of({}, NOW - 9, NOW) == NOW - 9
    assert crawled_at_of({}, None, NOW) == NOW
    assert crawled_at_of({"freshet.crawled-at": str(NOW - 2)}, NOW - 9, NOW) == NOW - 2
    for impossible in (NOW + 1, NOW - 10, "nan", "-inf", "then"):
        assert crawled_at_of({"freshet.crawled-at": str(impossible)}, NOW - 9, NOW) == NOW - 9


def test_when_a_request_was_made_is_told_by_its_id_and_by_no_other_text():
    asked_at = NOW + 0.25
    assert requested_at_of(request_id_of(3, 1 << 60, int(microseconds(asked_at)))) == asked_at
    for other in (None, "", "3", "1-2-x", "1-2-", "1-2-3-4", "1-2--3", "1-2-" + "f" * 16, "1-2-²"):
        assert requested_at_of(other) is None


@pytest.mark.parametrize(
    ("said", "given_at", "believed"),
    [
        (NOW - 5, None, NOW - 5),
        (NOW - 5, NOW - 2, NOW - 5),
        (None, NOW - 2, NOW - 2),
        (None, None, NOW - 9),
        # Before the request was made, in the future, or no time at all.
        (NOW - 90, None, NOW - 9),
        (NOW + 1, None, NOW - 9),
        (NOW + 1, NOW - 2, NOW - 2),
        ("nan", None, NOW - 9),
        ("-inf", None, NOW - 9),
        ("then", None, NOW - 9),
    ],
)
def test_when_it_was_handed_out_comes_back_with_the_answer_and_is_believed_within_bounds(
    said, given_at, believed
):
    metadata = {} if said is None else {"freshet.given-at": str(said)}
    assert given_at_of(metadata, NOW - 9, given_at, NOW) == believed


def test_of_what_nobody_knows_when_it_was_asked_for_the_crawler_is_believed_up_to_now():
    assert given_at_of({}, None, None, NOW) is None
    assert given_at_of({"freshet.given-at": str(NOW - 90)}, None, None, NOW) == NOW - 90
    for impossible in (NOW + 1, -1, "nan", "inf"):
        assert given_at_of({"freshet.given-at": str(impossible)}, None, None, NOW) is None
    # An id may say anything, too.
    assert given_at_of({}, NOW + 1, None, NOW) is None


KEYS = ["freshet.result", "freshet.digest", "freshet.status", "fetch.statusCode", "retry-after"]
KEYS += ["_redirTo", "error.cause", "freshet.crawled-at", "freshet.canonical-url"]
KEYS += ["freshet.given-at"]
SAID = st.text(max_size=400) | st.sampled_from([*get_args(Result), "301", "304", "../z", "#", "y"])
IDS = st.none() | st.text(max_size=64) | st.from_regex(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]{1,20}")


@given(
    st.dictionaries(st.sampled_from(KEYS), st.lists(SAID, max_size=2)),
    st.integers(0, 2**64 - 1),
    IDS,
    st.none() | st.just(NOW - 9),
)
def test_whatever_is_said_it_makes_a_message_that_is_read(said, refetch, request_id, given_at):
    info = URLInfo(metadata={key: StringList(values=values) for key, values in said.items()})
    metadata = plain(info.metadata)
    found = found_of(URL, metadata, refetch, NOW)
    given_at = given_at_of(metadata, requested_at_of(request_id), given_at, NOW)
    at = crawled_at_of(metadata, given_at, NOW)
    assert 0 <= at <= NOW
    outcome = CrawlOutcome(URL, at, "a.example", None, *found[:-1])
    assert decode(CrawlOutcome, encode(outcome)) == outcome
    assert not elsewhere_to_themselves([outcome])


def test_where_a_host_was_found_is_said_as_outcomes_can():
    assert group_of({"freshet.group": "cdn-a", "_response.ip_": "203.0.113.7"}) == "cdn-a"
    assert group_of({"protocol._response.ip_": "203.0.113.7"}) == "203.0.113.7"
    assert group_of({}) is None
    for no_group in ("", "x" * 65, "two words", "ä", "a\n"):
        assert group_of({"freshet.group": no_group}) is None


@given(st.text(max_size=80))
def test_whatever_is_said_of_a_group_its_outcome_can_be_read(said):
    outcome = CrawlOutcome(
        URL, NOW, "a.example", result="changed", group=group_of({"freshet.group": said})
    )
    assert decode(CrawlOutcome, encode(outcome)) == outcome
