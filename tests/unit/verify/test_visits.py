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
SETTINGS = SimpleNamespace(
    request_timeout_seconds=8.0, failed_retry_seconds=3.0, least_interval_seconds=1.0
)


def url(number):
    return f"https://a.example/{number}"


def answer(asked_at, at, result, written_at=None):
    outcome = CrawlOutcome(URL, at, request_id=f"r{asked_at}", result=result)
    return Answered(outcome, 0, 0, at if written_at is None else written_at)


def late_pages(
    visits,
    *,
    end=100.0,
    downtimes=(),
    added=(),
    changes=(),
    held=0.0,
    pauses=(),
    crawled=(),
    lost=(),
):
    """Which of some pages (URL → times of requests) are found, under a bound of 60 s.

    Each request is answered at once and well, but for those of `crawled`, which says when they
    were crawled and what was found, and of `lost`, which nobody answers.
    """
    known = list(visits)
    told = {asked_at for asked_at, *_ in crawled} | {*lost}
    well = [(at, at, "unchanged") for times in visits.values() for at in times if at not in told]
    ledger = Ledger(
        settings=SETTINGS,
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
        + [answer(*one) for one in (*well, *crawled)],
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
    found_away = [(20.0, 20.1, result)]
    assert late_pages({URL: times}, end=200.0, crawled=found_away, lost=[40.0]).count == found


def test_a_copy_is_as_old_as_its_crawl():
    # The broker was away for 19 seconds just when it had the request.
    asked_at = {URL: [20.0, 97.5]}
    away = [(20.0, 39.0)]

    assert late_pages(asked_at, downtimes=away, lost=[20.0]).count == 1
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


def at_once(*times):
    return [(at, at, "failed") for at in times]


def test_a_page_whose_crawls_fail_is_not_left_alone_for_another_bound():
    """Its copy was never renewed."""
    times, limit = [60.0, 131.0, 202.0, 273.0, 344.0], [(0.0, 100.0)]

    assert late_pages({URL: times}, end=400.0, crawled=at_once(*times), changes=limit).count >= 2


@pytest.mark.parametrize(
    ("failed", "again", "found"),
    [
        # Three seconds after a failure, six after two; and the slack that all have.
        ([60.0], 60.0 + 3.0 + 12.0, 0),
        ([60.0], 60.0 + 3.0 + 13.0, 1),
        ([60.0, 64.0], 64.0 + 6.0 + 12.0, 0),
        ([60.0, 64.0], 64.0 + 6.0 + 13.0, 1),
        # The copy is within its bound for longer than that.
        ([30.0], 60.0 + 12.0, 0),
        ([30.0], 60.0 + 13.0, 1),
        # After three it goes by its value alone.
        ([60.0, 64.0, 71.0], 71.0 + 60.0, 0),
        ([60.0, 64.0, 71.0], 71.0 + 71.0 + 12.0, 0),
        ([60.0, 64.0, 71.0], 71.0 + 71.0 + 13.0, 1),
    ],
)
def test_a_page_that_failed_is_due_when_its_wait_is_over(failed, again, found):
    crawls = late_pages({URL: [*failed, again]}, end=again + 1.0, crawled=at_once(*failed))
    assert crawls.count == found


@pytest.mark.parametrize(
    ("lost", "again", "found"),
    [
        ([60.0], 60.0 + 8.0 + 3.0 + 12.0, 0),
        ([60.0], 60.0 + 71.0, 1),
        ([60.0, 72.0], 72.0 + 8.0 + 6.0 + 12.0, 0),
        ([60.0, 72.0], 72.0 + 8.0 + 6.0 + 13.0, 1),
    ],
)
def test_a_request_that_nobody_answers_is_late_and_then_waits_as_a_failure(lost, again, found):
    assert late_pages({URL: [*lost, again]}, end=again + 1.0, lost=lost).count == found


def test_a_crawl_that_went_well_ends_the_doubling():
    failed, again = [60.0, 64.0, 131.0], 131.0 + 3.0

    def count(later):
        times = [60.0, 64.0, 71.0, 131.0, again + later]
        return late_pages({URL: times}, end=200.0, crawled=at_once(*failed)).count

    assert (count(12.0), count(13.0)) == (0, 1)


def test_an_answer_ends_the_row_of_requests_without_one():
    """What is answered by a failure was not asked for in vain."""
    failed, again = at_once(72.0), 72.0 + 3.0

    def count(later):
        times = [60.0, 72.0, again + later]
        return late_pages({URL: times}, end=100.0, crawled=failed, lost=[60.0]).count

    assert (count(12.0), count(13.0)) == (0, 1)


def test_nobody_waits_for_less_than_the_news_of_a_failure():
    """While the broker does not have them, the request waits until it is late."""

    def count(written_at, again):
        failed = [(60.0, 60.0, "failed", written_at)]
        return late_pages({URL: [60.0, again]}, end=120.0, crawled=failed).count

    assert (count(66.0, 66.0 + 12.0), count(66.0, 66.0 + 13.0)) == (0, 1)
    assert (count(90.0, 71.0 + 12.0), count(90.0, 71.0 + 13.0)) == (0, 1)


def test_who_was_away_and_fails_is_away_until_somebody_names_it():
    crawls = [(20.0, 20.0, "redirected"), (40.0, 40.0, "failed")]
    assert late_pages({URL: [20.0, 40.0]}, end=200.0, crawled=crawls).passed


def test_who_was_not_found_three_times_is_not_due():
    times = [10.0, 40.0, 70.0]
    crawls = [(at, at, "gone") for at in times]
    assert late_pages({URL: times}, end=300.0, crawled=crawls).passed
    assert late_pages({URL: times}, end=300.0, crawled=crawls[:2], lost=[70.0]).count == 1


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


def test_what_is_crawled_while_something_is_down_leaves_the_queue():
    due, budget, down = np.array([0.0, 0.0, 0.0, 1.0]), [(0.0, 1.0)], [(0.0, 40.0)]
    crawled = np.array([5.0, 10.0, 15.0, 45.0])

    assert deadlines(due, budget, down, 100.0).tolist() == [44.0] * 4
    assert deadlines(due, budget, down, 100.0, crawled).tolist() == [41.0] * 4
    assert deadlines(due, budget, [], 100.0, crawled).tolist() == [4.0] * 4


def never_enough(late=()):
    """Thirty pages are due in thirty seconds, ten were before, and the budget ends with them."""
    everybody = {url(n): [60.0 + n, 61.0 + n] for n in range(30)}
    waiting = {url(n): list(late) for n in range(30, 40)}
    limit = [(0.0, 1.0)]
    return late_pages(everybody | waiting, end=90.0, changes=limit)


def test_where_the_budget_did_not_last_nobody_can_be_judged():
    found = never_enough()

    assert found.looked_at == 0
    assert found.figures["cannot_be_judged"] == found.figures["due"] > 30
    assert found.count == 1
    assert "--rate" in found.examples[0]
    assert "--pages" in found.examples[0]


@pytest.mark.parametrize(("unjudged", "passed"), [(50, True), (51, False)])
def test_half_may_be_due_too_late_to_be_judged(unjudged, passed):
    """The budget ends with the run: the last pages that are due can have no turn any more."""
    early = {url(n): [60.0 + n / 3] for n in range(100 - unjudged)}
    last = {url(n): [111.99 - 60.0] for n in range(100, 100 + unjudged)}
    found = late_pages(early | last, end=112.0, changes=[(0.0, 10.0)])

    assert found.figures["cannot_be_judged"] == unjudged
    assert found.passed == passed
    assert found.looked_at == found.figures["due"] - unjudged


def test_while_a_new_budget_settles_the_lower_one_counts():
    due = np.full(10, 0.0)

    assert deadlines(due, [(0.0, 10.0), (0.5, 1.0)], [], 100.0)[0] == pytest.approx(5.5)
    assert deadlines(due, [(0.0, 1.0), (1.0, 10.0)], [], 100.0)[0] == pytest.approx(3.7)
