"""What somebody's server chose, and a crawler passed on, takes no message with it."""

import json

import pytest

from shared.contracts.asyncapi import document
from shared.contracts.codec import BadMessage, decode, decode_many, encode
from shared.contracts.fields import MAX_CRAWL_DELAY_SECONDS, MAX_RETRY_AFTER_SECONDS
from shared.contracts.messages import CrawlOutcome, HostLimit
from shared.rules.host_rules import HostRules
from shared.rules.page_events import elsewhere_to_themselves
from shared.runtime.acceptance import Acceptance
from shared.units import SECONDS_PER_DAY

NOW = 1.7e9
BUSY = b'{"url": "https://a.example/", "crawled_at": 1.7e9, "result": "failed", %s}'
DELAY = b'{"host": "a.example", "only": "crawl-delay", "crawl_delay_seconds": %s}'
NO_NUMBERS = [b"-1", b"-1e99", b"NaN", b"Infinity", b"-Infinity", b"1e999", b'"60"', b"true"]


@pytest.mark.parametrize("seconds", [b"1e9", b"1000000001", b"99999999999", b"9" * 40, b"1e308"])
def test_a_host_that_asks_for_ages_is_left_alone_for_the_longest_pause(seconds):
    written = BUSY % b'"retry_after_seconds": %s' % seconds
    [outcome], bad = decode_many(CrawlOutcome, [written])
    assert (outcome.retry_after_seconds, bad) == (MAX_RETRY_AFTER_SECONDS, {})
    assert decode(CrawlOutcome, encode(outcome)) == outcome
    assert Acceptance(NOW, NOW, True).busy_until([outcome]) == [NOW + SECONDS_PER_DAY]


@pytest.mark.parametrize("seconds", [b"1e7", b"99999999", b"9" * 40, b"1e308"])
def test_a_host_that_asks_for_an_endless_crawl_delay_gets_the_longest_not_none(seconds):
    rules = HostRules()
    rules.take(decode(HostLimit, DELAY % seconds))
    assert rules.crawl_delay == MAX_CRAWL_DELAY_SECONDS


@pytest.mark.parametrize("seconds", NO_NUMBERS)
def test_what_is_no_number_of_seconds_is_refused(seconds):
    with pytest.raises(BadMessage):
        decode(CrawlOutcome, BUSY % b'"retry_after_seconds": %s' % seconds)
    with pytest.raises(BadMessage):
        decode(HostLimit, DELAY % seconds)


@pytest.mark.parametrize("result", ["redirected", "canonical"])
@pytest.mark.parametrize("target", ["", "https://b.example/" + "x" * 3000])
def test_a_page_that_leads_to_what_is_no_url_is_away_all_the_same(result, target):
    field = "redirected_to" if result == "redirected" else "canonical_url"
    said = {"url": "https://a.example/", "crawled_at": NOW, "result": result, field: target}
    outcome = decode(CrawlOutcome, json.dumps(said).encode())
    assert outcome.result == result
    assert elsewhere_to_themselves([outcome]) == {}


@pytest.mark.parametrize(
    ("kind", "field"), [(CrawlOutcome, "retry_after_seconds"), (HostLimit, "crawl_delay_seconds")]
)
def test_the_contract_takes_what_readers_take(kind, field):
    said = document()["components"]["schemas"][kind.__name__]["properties"][field]
    assert said["anyOf"] == [{"type": "number", "minimum": 0}, {"type": "null"}]
    assert "counts as" in said["description"]
