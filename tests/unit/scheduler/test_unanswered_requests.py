"""Requests that nobody answers, and pages that fail: when they are asked for again."""

from reference_shard import DAY, World, rules

from shared.rules.page_events import FAILED

START = 1.7e9


def test_an_unanswered_request_is_made_again_after_its_deadline():
    world = World(rules(timeout=10.0, retry=20.0))
    page = world.add_page("a", 1, START, last_crawled_at=START - DAY)
    assert world.pick([START + 1.0, START + 5.0, START + 10.9], 1.0) == [page.page_id, None, None]
    assert world.pick([START + 30.9], 1.0) == [None]
    assert world.pick([START + 31.0], 1.0) == [page.page_id]
    # The second one is not answered either: it waits twice as long.
    assert world.pick([START + 80.9], 1.0) == [None]
    assert world.pick([START + 81.0], 1.0) == [page.page_id]


def test_pages_that_never_answer_have_no_claim_to_an_upper_tier():
    world = World(rules(timeout=10.0, retry=20.0))
    silent = world.add_page("a", 1, START, importance=1e-3)
    now = START + 1.0
    for wait in (30.0, 50.0, 90.0):
        assert world.pick([now], 1.0) == [silent.page_id]
        now += wait
    valuable = world.add_page("b", 1, START, last_crawled_at=START - 20 * DAY)
    assert world.pick([now], 1.0) == [valuable.page_id]
    assert world.pick([now + 1.0], 1.0) == [silent.page_id]


def test_an_answer_ends_the_waiting_of_a_page_that_was_silent():
    world = World(rules(timeout=10.0, retry=20.0))
    page = world.add_page("a", 1, START, last_crawled_at=START - DAY)
    assert world.pick([START + 1.0], 1.0) == [page.page_id]
    assert world.pick([START + 31.0], 1.0) == [page.page_id]
    world.outcome(page.page_id, START + 32.0)
    assert world.pick([START + 33.0], 1.0) == [page.page_id]


def test_requests_whose_answers_are_read_only_after_a_load_were_not_in_vain():
    world = World(rules(timeout=10.0, retry=20.0))
    page = world.add_page("a", 1, START, last_crawled_at=START - DAY)
    for begin in (1.0, 31.0, 81.0):
        assert world.pick([START + begin], 1.0) == [page.page_id], begin
    # All but the last had been answered: a scheduler that loads reads requests before outcomes.
    for answered in (2.0, 32.0):
        world.outcome(page.page_id, START + answered)
    assert world.pick([START + 110.9], 1.0) == [None]
    assert world.pick([START + 111.0], 1.0) == [page.page_id]


def test_a_failed_page_waits_twice_as_long_each_time():
    world = World(rules(retry=100.0))
    page = world.add_page("a", 1, START, last_crawled_at=START - 1.0)
    now = START
    for wait in (100.0, 200.0, 400.0):
        now += 1.0
        assert world.pick([now], 1.0) == [page.page_id]
        world.outcome(page.page_id, now, FAILED)
        assert world.pick([now + wait - 0.5], 1.0) == [None]
        now += wait
    assert world.pick([now], 1.0) == [page.page_id]
