"""Each rule of a host has one writer, and the strictest holds."""

import math

import pytest

from shared.contracts.codec import decode, encode
from shared.contracts.identity import BadHost
from shared.contracts.messages import CrawlOutcome, HostLimit
from shared.rules.host_rules import (
    FIRST_BACK_OFF_SECONDS,
    PATIENCE,
    HostRules,
    as_said,
    reach_of,
    reaches_of,
    with_proper_host,
)
from shared.store.page_status import NEVER
from shared.views.hosts import described, line_of

NOW = 1.7e9
DEFAULT = 2.0
URL = "https://a.example/x"
WAITS = [FIRST_BACK_OFF_SECONDS * 2.0**n for n in range(30)]


def rules_after(*messages):
    rules = HostRules()
    for message in messages:
        rules.take(HostLimit("a.example", **message))
    return rules


def failing(times):
    """A host that failed so often in a row, each time as soon as it was asked again."""
    rules, at = HostRules(), NOW
    for _ in range(times):
        assert rules.note(-1, at)
        at = rules.failed_at + rules.back_off_seconds + 1.0
    return rules


def test_a_block_leaves_the_limit_alone_and_a_limit_the_block():
    rules = rules_after(
        {"only": "limit", "max_crawls_per_second": 0.05},
        {"only": "block", "blocked_until": NOW + 60},
    )
    holds = rules.effective(DEFAULT)
    assert (holds.rate, holds.rate_rule) == (0.05, "operator")
    assert (holds.blocked_until, holds.block_rule) == (NOW + 60, "operator")
    rules.take(HostLimit("a.example", only="limit"))
    assert rules.effective(DEFAULT).blocked_until == NOW + 60
    assert rules.effective(DEFAULT).rate_rule == "default"


def test_a_crawl_delay_lifts_no_block_and_no_limit_and_is_kept_exactly():
    rules = rules_after(
        {"max_crawls_per_second": 0.5, "blocked_until": NOW + 60},
        {"only": "crawl-delay", "crawl_delay_seconds": 100.0},
    )
    holds = rules.effective(DEFAULT)
    assert (holds.rate, holds.rate_rule, holds.is_paced) == (0.01, "robots", True)
    assert holds.blocked_until == NOW + 60
    rules.take(HostLimit("a.example", only="crawl-delay", crawl_delay_seconds=1.0))
    assert rules.effective(DEFAULT).rate == 0.5


def test_what_senders_of_before_say_replaces_limit_and_block():
    rules = rules_after({"max_crawls_per_second": 0.05, "blocked_until": NOW}, {})
    assert rules.effective(DEFAULT) == (DEFAULT, "default", NEVER, "operator", False, 0)


def test_a_bound_of_open_requests_is_changed_by_messages_about_it_alone():
    rules = rules_after({"only": "open", "max_open_requests": 3})
    assert rules.effective(DEFAULT) == (DEFAULT, "default", NEVER, "operator", False, 3)
    rules.take(HostLimit("a.example", 0.5, NOW + 60))
    rules.take(HostLimit("a.example", only="limit"))
    rules.take(HostLimit("a.example", only="crawl-delay", crawl_delay_seconds=5.0))
    # Who knows nothing of it says nothing of it, and a tombstone neither.
    rules.take(HostLimit("a.example", max_open_requests=9))
    rules.take(HostLimit("a.example"))
    assert rules.effective(DEFAULT).most_open == 3
    rules.take(HostLimit("a.example", only="open"))
    assert rules.effective(DEFAULT) == (0.2, "robots", NEVER, "operator", True, 0)


def test_a_bound_of_open_requests_leaves_limit_and_block_alone():
    rules = rules_after(
        {"max_crawls_per_second": 0.5, "blocked_until": NOW + 60},
        {"only": "open", "max_open_requests": 1000},
    )
    assert rules.effective(DEFAULT) == (0.5, "operator", NOW + 60, "operator", False, 1000)


def test_an_operator_who_ends_a_block_does_not_end_a_pause_that_the_host_asked_for():
    rules = rules_after({"only": "block", "blocked_until": NOW + 10})
    assert rules.ask(NOW + 600)
    assert not rules.ask(NOW + 500)
    rules.take(HostLimit("a.example", only="block"))
    assert rules.effective(DEFAULT)[2:4] == (NOW + 600, "host")


def test_a_host_that_fails_in_a_row_is_left_alone_ever_longer_up_to_a_day():
    assert failing(PATIENCE - 1).effective(DEFAULT).rate_rule == "default"
    waits = [failing(PATIENCE + n).back_off_seconds for n in range(20)]
    assert waits == [min(wait, 86_400.0) for wait in WAITS[:20]]
    rules = failing(PATIENCE + 2)
    holds = rules.effective(DEFAULT)
    assert (holds.rate, holds.rate_rule, holds.is_paced) == (1 / 240.0, "learned", True)
    assert (holds.blocked_until, holds.block_rule) == (rules.failed_at + 240.0, "learned")


def test_what_was_on_its_way_when_a_host_was_backed_off_from_says_nothing():
    rules = failing(PATIENCE)
    assert not any(rules.note(-1, rules.failed_at + second) for second in range(1, 60))
    assert rules.failures == PATIENCE


def test_one_answer_ends_a_back_off_but_not_one_of_before():
    rules = failing(PATIENCE + 3)
    assert not rules.note(1, rules.failed_at - 1.0)
    assert rules.note(1, rules.failed_at + 1.0)
    assert rules.effective(DEFAULT).rate_rule == "default"
    assert not rules.note(1, NOW + 1e6)


def test_failures_of_before_say_nothing_of_a_host_that_has_answered_since():
    """A crawler that was cut off tells of them late, or they are sent once more."""
    rules = failing(PATIENCE + 3)
    began, answered = rules.failed_at, rules.failed_at + 600.0
    assert rules.note(1, answered)
    assert not any(rules.note(-1, began + second) for second in range(0, 600, 5))
    assert rules.failures == 0
    assert rules.note(-1, answered + 1.0)


@pytest.mark.parametrize(
    ("result", "status", "reached"),
    [
        ("unchanged", None, 1),
        ("changed", 200, 1),
        ("gone", 404, 1),
        ("failed", 403, 1),
        ("failed", 429, -1),
        ("failed", 503, -1),
        ("failed", None, -1),
        ("not_modified", 304, 1),
        ("redirected", None, 1),
        ("canonical", 200, 1),
        ("disallowed", None, 0),
        ("disallowed", 200, 1),
        ("disallowed", 503, -1),
        ("failed", 0, -1),
        ("disallowed", 0, 0),
        ("gone", 0, 1),
    ],
)
def test_which_answers_say_that_a_host_is_well(result, status, reached):
    outcome = CrawlOutcome(URL, NOW, result=result, http_status=status)
    assert reach_of(outcome) == reached
    assert reaches_of([outcome]).tolist() == [reached]


def test_a_crawl_that_was_not_made_says_nothing_of_its_host():
    rules = failing(PATIENCE)
    before = str(rules)
    assert not rules.note(0, rules.failed_at + 1.0)
    assert not rules.note(0, rules.failed_at + 1e6)
    assert str(rules) == before


def test_people_see_which_rule_binds():
    rules = rules_after({"only": "limit", "max_crawls_per_second": 0.5})
    rules.ask(NOW + 7200)
    row = {"host": "a.example", "shard": 3}
    rules.write(row)
    shown = described(row, DEFAULT, NOW)
    assert (shown["max_crawls_per_second"], shown["by"]) == (0.5, "operators")
    assert (shown["blocked_until"], shown["blocked_by"]) == (NOW + 7200, "the host asked for it")
    assert shown["crawl_delay_seconds"] is None
    assert "left alone for 2 hours (the host asked for it)" in line_of(shown, NOW)
    later = described(row, DEFAULT, NOW + 7201)
    assert later["blocked_until"] is later["blocked_by"] is None
    assert math.isclose(later["asked_until"], NOW + 7200)
    assert "left alone" not in line_of(later, NOW + 7201)


def test_people_see_how_many_requests_may_be_open():
    rules = rules_after({"only": "open", "max_open_requests": 3})
    row = {"host": "a.example", "shard": 3}
    rules.write(row)
    assert HostRules.read(row) == rules
    shown = described(row, DEFAULT, NOW)
    assert (shown["max_open_requests"], shown["open_requests_by"]) == (3, "operators")
    assert "2/s (the default), at most 3 open requests (operators)" in line_of(shown, NOW)
    rules.take(HostLimit("a.example", only="open"))
    rules.write(row)
    shown = described(row, DEFAULT, NOW)
    assert shown["max_open_requests"] is shown["open_requests_by"] is None
    assert "open" not in line_of(shown, NOW)


@pytest.mark.parametrize("only", [None, "crawl-delay"])
def test_a_delay_alone_is_about_the_delay_alone(only):
    """Who forgets to say so does not take the operators' limit away."""
    rules = HostRules()
    rules.take(HostLimit("a.example", 0.2, NOW + 60))
    rules.take(decode(HostLimit, encode(HostLimit("a.example", crawl_delay_seconds=7, only=only))))
    assert (rules.limit, rules.blocked_until, rules.crawl_delay) == (0.2, NOW + 60, 7.0)


def test_with_a_limit_or_a_block_a_message_is_about_both_as_ever():
    rules = HostRules()
    rules.take(HostLimit("a.example", 0.0, crawl_delay_seconds=7))
    rules.take(HostLimit("a.example", blocked_until=NOW, crawl_delay_seconds=7))
    assert math.isnan(rules.limit)
    assert (rules.blocked_until, math.isnan(rules.crawl_delay)) == (NOW, True)


@pytest.mark.parametrize(
    "written", ["A.Example", "a.example:443", "a.example:80", "a.example.", "a.EXAMPLE"]
)
def test_a_host_may_be_written_in_any_way(written):
    assert with_proper_host(HostLimit(written, 0.5)) == HostLimit("a.example", 0.5)


@pytest.mark.parametrize(
    ("host", "said"),
    [
        ("a.example:80", "https://a.example:80"),
        ("a.example:443", "http://a.example:443"),
        ("[::1]:443", "http://[::1]:443"),
        ("a.example:8080", "a.example:8080"),
        ("a.example", "a.example"),
    ],
)
def test_a_host_on_the_port_of_the_other_scheme_can_be_said(host, said):
    assert as_said(host) == said
    assert with_proper_host(HostLimit(said, 0.5)) == HostLimit(host, 0.5)


@pytest.mark.parametrize("key", ["a.example:80", "a.example:443"])
def test_a_tombstone_takes_back_the_rules_of_the_host_that_is_its_key(key):
    """As that of a host that is erased: it is read as a message that says nothing else."""
    assert with_proper_host(HostLimit(key)) == HostLimit(key)
    assert with_proper_host(HostLimit(key, only="block")).host == "a.example"


@pytest.mark.parametrize("written", ["https://a.example/robots.txt", "a b", "me@a.example"])
def test_what_is_no_host_is_refused(written):
    with pytest.raises(BadHost, match="is not a host"):
        with_proper_host(HostLimit(written))
