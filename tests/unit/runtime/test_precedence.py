"""What is said of a page waits until the page is known, and for no longer."""

import math

import pytest
from aiokafka import TopicPartition

from shared.runtime.precedence import PATIENCE_SECONDS, Precedence

CRAWLS = TopicPartition("crawls", 3)
SIGNALS = TopicPartition("signals", 3)
NOW = 100.0


@pytest.fixture
def precedence():
    return Precedence("pages", frozenset({"crawls", "signals"}))


def test_where_the_first_topic_is_read_to_its_end_nothing_waits(precedence):
    assert precedence.admit(3, 7, 7, {CRAWLS: 5}, NOW) == {CRAWLS: 5}
    assert precedence.admit(3, 9, 7, {CRAWLS: 6}, NOW) == {CRAWLS: 6}


def test_records_wait_until_the_first_topic_is_read_as_far_as_it_went_then(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW) == {}
    assert precedence.admit(3, 8, 9, {CRAWLS: 5}, NOW) == {}
    assert precedence.admit(3, 9, 9, {CRAWLS: 5, SIGNALS: 2}, NOW) == {CRAWLS: 5, SIGNALS: 2}


def test_while_the_first_topic_goes_on_and_on_those_that_came_before_go_on_too(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW) == {}
    # What has come meanwhile, of another topic as well, waits in its turn.
    assert precedence.admit(3, 10, 12, {CRAWLS: 8, SIGNALS: 2}, NOW) == {CRAWLS: 5, SIGNALS: 0}
    assert precedence.admit(3, 13, 15, {CRAWLS: 9, SIGNALS: 4}, NOW) == {CRAWLS: 8, SIGNALS: 2}


def test_partitions_wait_by_themselves(precedence):
    other = TopicPartition("crawls", 4)
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW) == {}
    assert precedence.admit(4, 2, 2, {other: 1}, NOW) == {other: 1}
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW) == {}


def test_a_broker_that_does_not_answer_is_waited_for(precedence):
    assert precedence.admit(3, 7, math.inf, {CRAWLS: 5}, NOW) == {}
    assert precedence.admit(3, 7, 8, {CRAWLS: 5}, NOW) == {}
    assert precedence.admit(3, 8, 10, {CRAWLS: 6}, NOW) == {CRAWLS: 5}


def test_nothing_waits_for_ever(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW) == {}
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW + PATIENCE_SECONDS) == {}
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW + PATIENCE_SECONDS + 0.1) == {CRAWLS: 5}


def test_after_a_rebalance_everything_is_read_again(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}, NOW) == {}
    precedence.forget()
    assert precedence.admit(3, 9, 12, {CRAWLS: 5}, NOW) == {}
