"""A page is not crawled twice in a row: what the check of that finds, and what it lets be."""

import pytest
from made_ledgers import TIMEOUT, answered, asked, ledger

from services.verify.checks import requests


@pytest.mark.parametrize(
    ("reason", "later", "found"),
    [("new", 30.0, 1), ("max-age", 30.0, 1), ("max-age", 60.0, 0), ("value", 30.0, 0)],
)
def test_a_crawl_that_was_forgotten_is_found(reason, later, found):
    first = asked(10.0)
    second = asked(10.0 + later, reason=reason)
    run = ledger(requests=[first, second], outcomes=[answered(first, 10.1)])

    assert requests.forgotten_crawls(run, 60.0).count == found


def test_a_page_is_chosen_before_its_request_waits_for_the_broker():
    first, second = asked(10.0, written_at=22.4), asked(22.0, written_at=26.0, reason="max-age")

    run = ledger(requests=[first, second], outcomes=[answered(first, 22.5)])

    assert requests.forgotten_crawls(run, 60.0).passed


@pytest.mark.parametrize(
    ("result", "status"), [("failed", 500), ("gone", 404), ("redirected", 301)]
)
def test_a_page_that_was_not_got_is_soon_asked_for_again(result, status):
    first, second = asked(10.0), asked(40.0, reason="max-age")
    missed = answered(first, 10.1, result, http_status=status)

    run = ledger(requests=[first, second], outcomes=[missed])

    assert requests.forgotten_crawls(run, 60.0).passed


def test_a_late_failure_is_no_crawl_for_the_request_that_came_meanwhile():
    first, second = asked(10.0, reason="new"), asked(10.0 + TIMEOUT, reason="new")
    third = asked(30.0, reason="new")
    late = answered(first, 10.5 + TIMEOUT, "failed", http_status=500)

    run = ledger(requests=[first, second, third], outcomes=[late])

    assert requests.forgotten_crawls(run, 60.0).passed
