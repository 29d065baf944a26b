"""Pages that are crawled too late, or never again, are found; what was down is the only excuse."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from services.verify.checks import pages
from services.verify.checks.deadlines import deadlines
from services.verify.ledger import Answered, Asked, Ledger, Page
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, CrawlRequest

SHARDS = 4
URL = "https://a.example/0"


def url(number):
    return f"https://a.example/{number}"


def late_pages(
    visits, *, end=100.0, downtimes=(), added=(), changes=(), held=0.0, pauses=(), crawled=()
):
    """Which of some pages (URL → times of requests) are found, under a bound of 60 s."""
    known = list(visits)
    ledger = Ledger(
        settings=SimpleNamespace(),
        layout=Layout.of(SHARDS),
        raw={},
        requests=[
            Asked(CrawlRequest(f"r{at}", 1, url, "a.example", at, at + 8, 1, 1, "value"), 0, 0, at)
            for url, times in visits.items()
            for at in times
        ],
        outcomes=[
            Answered(
                CrawlOutcome(URL, at, host, retry_after_seconds=until - at, result="failed"),
                0,
                0,
                at,
            )
            for host, at, until in pauses
        ]
        + [
            Answered(CrawlOutcome(URL, at, request_id=f"r{asked_at}", result=result), 0, 0, at)
            for asked_at, at, result in crawled
        ],
        signals=[],
        page_signals=[],
        pages=[
            Page(identify(url).page_id, shard_of("a.example", SHARDS), url, 0, 0, -math.inf, 1.0)
            for url in known
        ],
        observations=[],
        transactions=[],
    )
    held_at = {url: held for url in known if url not in added}
    return pages.visited(ledger, held_at, (0.0, end), 60.0, downtimes, dict(added), changes)


def test_a_page_that_is_crawled_too_late_is_found():
    assert late_pages({URL: [50.0]}).passed
    assert late_pages({URL: [80.0]}).count == 1


@pytest.mark.parametrize(
    ("result", "times", "found"),
    [("unchanged", [20.0], 1), ("redirected", [20.0], 0), ("disallowed", [20.0, 40.0], 1)],
)
def test_who_is_found_to_be_away_is_not_due_until_it_is_asked_for_again(result, times, found):
    assert late_pages({URL: times}, end=200.0, crawled=[(20.0, 20.1, result)]).count == found


def test_a_copy_is_as_old_as_its_crawl():
    # The broker was away for 19 seconds just when it had the request.
    asked_at = {URL: [20.0, 97.5]}
    away = [(20.0, 39.0)]

    assert late_pages(asked_at, downtimes=away).count == 1
    assert late_pages(asked_at, downtimes=away, crawled=[(20.0, 39.0, "unchanged")]).passed
    assert late_pages(asked_at, downtimes=away, crawled=[(20.0, 39.0, "failed")]).count == 1
    assert late_pages(asked_at, downtimes=away, crawled=[(20.0, 19.0, "changed")]).count == 1


def test_a_page_that_is_not_found_waits_until_that_is_to_be_confirmed():
    def count(again, result, held):
        times, answer = {URL: [10.0, again]}, (10.0, 10.0, result)
        return late_pages(times, end=120.0, held=held, crawled=[answer]).count

    # It had not been crawled for 180 s: 90 s later is soon enough, with the slack that all have.
    assert count(111.0, "gone", held=-170.0) == 0
    assert count(113.0, "gone", held=-170.0) == 1
    assert count(111.0, "changed", held=-170.0) == 1
    assert count(85.0, "gone", held=-50.0) == 1, "in its bound it is due in any case"


def test_time_in_which_nothing_could_be_crawled_is_not_counted():
    assert late_pages({URL: [80.0]}, downtimes=[(60.0, 75.0)]).passed
    assert late_pages({URL: [80.0]}, downtimes=[(20.0, 50.0)]).count == 1  # it was not due then


def test_a_page_that_is_never_crawled_again_is_found():
    often_down = [(start, start + 8.0) for start in range(0, 90, 10)]

    found = late_pages({URL: [10.0]}, end=110.0, downtimes=often_down)

    assert found.count == 1
    assert "not crawled again for 100.0 s" in found.examples[0]
    assert late_pages({URL: []}).count == 1
    assert late_pages({URL: [45.0]}).passed  # it is not due yet


def test_a_page_waits_while_its_host_asks_to_be_left_alone():
    paused, another = ("a.example", 55.0, 70.0), ("b.example", 55.0, 70.0)

    assert late_pages({URL: [80.0]}, pauses=[paused]).passed
    assert late_pages({URL: [80.0]}, pauses=[another]).count == 1
    assert late_pages({URL: [85.0]}, pauses=[paused]).count == 1


def test_what_is_down_after_a_pages_turn_is_not_counted():
    down, paused = (68.0, 80.0), ("a.example", 55.0, 69.0)

    assert late_pages({URL: [85.0]}, pauses=[paused], downtimes=[down]).passed
    assert late_pages({URL: [85.0]}, downtimes=[down]).count == 1  # it had eight seconds before
    assert late_pages({URL: [94.0]}, pauses=[paused], downtimes=[down]).count == 1


def test_a_new_page_is_due_at_once():
    assert late_pages({URL: [15.0, 70.0]}, added={URL: 5.0}).passed
    assert late_pages({URL: [25.0, 70.0]}, added={URL: 5.0}).count == 1
    assert late_pages({URL: []}, added={URL: 5.0}).count == 1


def test_pages_that_are_due_at_once_wait_for_their_turn():
    everybody = {url(n): [60.0 + n / 2] for n in range(80)}
    two_a_second, ten_a_second = [(0.0, 2.0)], [(0.0, 10.0)]

    assert late_pages(everybody, end=120.0, changes=two_a_second).passed
    found = late_pages(everybody, end=120.0, changes=ten_a_second)

    # Ten a second could have crawled all eighty within eight seconds, and a shard's part of it is
    # found within fifteen.
    assert found.count == pytest.approx(80 - 2 * (8 + pages.SLACK_SECONDS + 15), abs=1)
    often = late_pages(everybody, end=120.0, changes=[(0.0, 256.0)])
    assert often.count == pytest.approx(80 - 2 * (pages.SLACK_SECONDS + 1), abs=1)


def test_a_deadline_is_when_the_queue_has_run_empty():
    due = np.array([0.0, 0.0, 1.0, 50.0])
    budget = [(0.0, 1.0)]

    assert deadlines(due, budget, [], 100.0).tolist() == [3.0, 3.0, 3.0, 51.0]
    assert deadlines(due, budget, [(1.0, 11.0)], 100.0).tolist() == [13.0, 13.0, 13.0, 51.0]
    assert deadlines(due, budget, [], 50.5).tolist() == [3.0, 3.0, 3.0, math.inf]
    assert deadlines(np.empty(0), budget, [], 100.0).size == 0


def test_while_a_new_budget_settles_the_lower_one_counts():
    due = np.full(10, 0.0)

    assert deadlines(due, [(0.0, 10.0), (0.5, 1.0)], [], 100.0)[0] == pytest.approx(5.5)
    assert deadlines(due, [(0.0, 1.0), (1.0, 10.0)], [], 100.0)[0] == pytest.approx(3.7)
