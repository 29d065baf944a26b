"""Answers come while those before are worked on, in their order."""

import threading
import time
from functools import partial

import pytest

from shared.runtime.ahead import ahead

PATIENCE = 60.0
"""Seconds that only a fault waits."""


def test_the_next_call_is_made_while_the_last_result_is_worked_on():
    began = threading.Event()

    def second():
        began.set()
        return 2

    with ahead([lambda: 1, second]) as results:
        assert next(results) == 1
        assert began.wait(PATIENCE)
        assert list(results) == [2]


def test_several_may_be_under_way():
    meeting = threading.Barrier(3)
    with ahead([partial(meeting.wait, PATIENCE)] * 3, 3) as results:
        assert sorted(results) == [0, 1, 2]


def test_no_more_are_under_way_than_may_be():
    under_way, seen = [], []

    def call():
        under_way.append(1)
        time.sleep(0.01)
        seen.append(len(under_way))
        under_way.pop()

    with ahead([call] * 6, 2) as results:
        assert list(results) == [None] * 6
    assert max(seen) <= 2


def test_an_error_comes_in_its_place_and_what_has_not_begun_is_not_begun():
    let_go, made = threading.Event(), []

    def fail():
        raise ValueError("gone")

    def hang():
        let_go.wait(PATIENCE)
        made.append("hang")

    calls = [lambda: 1, fail, hang, lambda: made.append("late")]
    with ahead(calls) as results:
        assert next(results) == 1
        with pytest.raises(ValueError, match="gone"):
            next(results)
        threading.Timer(0.05, let_go.set).start()
    # What was under way has ended.
    assert made in ([], ["hang"])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_without_calls_there_is_no_thread():
    with ahead([]) as results:
        assert list(results) == []
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]
