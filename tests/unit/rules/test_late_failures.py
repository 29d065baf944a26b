"""Failures that are heard of late, as their crawler was cut off."""

from both_sides import DAY, HOSTS, KNOWN, START, URLS, BothSides

from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.rules.host_rules import PATIENCE, HostRules

PAGES = URLS[:2]


def outcomes(result, at, urls=PAGES):
    return [(CRAWL_OUTCOMES.name, CrawlOutcome(url, at, result=result)) for url in urls]


def failures_of(both):
    both.compare()
    row = both.theirs.hosts.row(HOSTS[0])
    return HostRules.read(both.theirs.hosts.records[row]).failures


def begun():
    both = BothSides(0.0)
    both.apply(KNOWN)
    return both


def outage(seconds):
    """What a crawler that had no network has to say of pages, in rounds of ten seconds."""
    return [one for second in range(0, seconds, 10) for one in outcomes("failed", START + second)]


def test_they_say_nothing_of_a_host_whose_pages_were_crawled_since():
    both = begun()
    both.apply(outcomes("changed", START + DAY))
    both.apply(outage(600))
    assert failures_of(both) == 0
    both.apply(outcomes("failed", START + DAY + 1.0))
    assert failures_of(both) == 1  # the other one was at the same time


def test_they_say_nothing_where_what_was_since_comes_with_them():
    both = begun()
    both.apply(outcomes("changed", START + DAY) + outage(600))
    assert failures_of(both) == 0


def test_they_count_once_where_nothing_else_was_heard():
    both = begun()
    both.apply(outage(600))
    once = failures_of(both)
    assert once >= PATIENCE
    both.apply(outage(600))
    assert failures_of(both) == once


def test_those_of_a_page_of_which_nothing_was_heard_since_count():
    both = begun()
    both.apply(outcomes("changed", START + DAY, PAGES[:1]))
    both.apply(outcomes("failed", START + 10.0, PAGES[1:]))
    assert failures_of(both) == 1
