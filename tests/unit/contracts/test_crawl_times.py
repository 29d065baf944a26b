"""A crawl was not before it was asked for, whatever the crawler's clock says."""

import pytest

from shared.contracts.codec import decode, encode
from shared.contracts.messages import CrawlOutcome
from shared.contracts.request_ids import microseconds, request_id_of
from shared.units import SECONDS_PER_DAY

ASKED = 1_700_000_000.25
REQUEST = request_id_of(3, 7, int(microseconds(ASKED)))


def told(crawled_at, request_id=REQUEST):
    """What becomes of an outcome's time on the way."""
    value = encode({"url": "https://a.example/", "crawled_at": crawled_at, "digest": "a"})
    outcome = decode(CrawlOutcome, value)
    assert outcome.crawled_at == crawled_at  # nobody has asked for it
    asked = value[:-1] + b',"request_id":"%s"}' % request_id.encode()
    read = decode(CrawlOutcome, asked)
    assert decode(CrawlOutcome, encode(read)) == read  # also where it is passed on
    return read.crawled_at


@pytest.mark.parametrize(
    "crawled_at",
    [ASKED - 0.001, 1_700_000_000.0, ASKED - 7_200.0, ASKED - SECONDS_PER_DAY],
    ids=["a little behind", "whole seconds", "another time zone", "a day"],
)
def test_a_clock_that_is_behind_says_when_it_was_asked_for(crawled_at):
    assert told(crawled_at) == ASKED


@pytest.mark.parametrize("later", [0.0, 0.3, 90.0])
def test_a_clock_that_is_right_is_believed(later):
    assert told(ASKED + later) == ASKED + later


@pytest.mark.parametrize(
    "request_id", ["mine", "job-12-deadbeefdeadbee", "1-2-3", REQUEST + "-4", "é-b-c"]
)
def test_ids_of_others_say_nothing(request_id):
    assert told(ASKED - 5.0, request_id) == ASKED - 5.0


def test_a_time_of_long_ago_is_no_clock_that_is_behind():
    """What a crawler read two days before it was asked is a copy that it had."""
    assert told(ASKED - 2.0 * SECONDS_PER_DAY) == ASKED - 2.0 * SECONDS_PER_DAY
