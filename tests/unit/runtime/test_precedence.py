"""What is said of a page waits until the page is known, however long, and for no longer."""

import asyncio
import math

import pytest
from aiokafka import ConsumerRecord, TopicPartition

from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_PARAMETERS, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime import precedence as module
from shared.runtime.precedence import Precedence
from shared.runtime.settings import Settings

CRAWLS = TopicPartition("crawls", 3)
SIGNALS = TopicPartition("signals", 3)
PAGES = TopicPartition("pages", 3)


@pytest.fixture
def precedence():
    return Precedence("pages", frozenset({"crawls", "signals"}))


def test_where_the_first_topic_is_read_to_its_end_nothing_waits(precedence):
    assert precedence.admit(3, 7, 7, {CRAWLS: 5}) == {CRAWLS: 5}
    assert precedence.admit(3, 9, 7, {CRAWLS: 6}) == {CRAWLS: 6}


def test_records_wait_until_the_first_topic_is_read_as_far_as_it_went_then(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}) == {}
    assert precedence.admit(3, 8, 9, {CRAWLS: 5}) == {}
    assert precedence.admit(3, 9, 9, {CRAWLS: 5, SIGNALS: 2}) == {CRAWLS: 5, SIGNALS: 2}


def test_while_the_first_topic_goes_on_and_on_those_that_came_before_go_on_too(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}) == {}
    # What has come meanwhile, of another topic as well, waits in its turn.
    assert precedence.admit(3, 10, 12, {CRAWLS: 8, SIGNALS: 2}) == {CRAWLS: 5, SIGNALS: 0}
    assert precedence.admit(3, 13, 15, {CRAWLS: 9, SIGNALS: 4}) == {CRAWLS: 8, SIGNALS: 2}


def test_partitions_wait_by_themselves(precedence):
    other = TopicPartition("crawls", 4)
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}) == {}
    assert precedence.admit(4, 2, 2, {other: 1}) == {other: 1}
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}) == {}


def test_a_broker_that_does_not_answer_is_waited_for(precedence):
    assert precedence.admit(3, 7, math.inf, {CRAWLS: 5}) == {}
    assert precedence.admit(3, 7, 8, {CRAWLS: 5}) == {}
    assert precedence.admit(3, 8, 10, {CRAWLS: 6}) == {CRAWLS: 5}


def test_records_wait_for_a_long_backlog(precedence):
    for position in range(7, 9_000):
        assert precedence.admit(3, position, 9_000, {CRAWLS: 5}) == {}
    assert precedence.admit(3, 9_000, 9_000, {CRAWLS: 5}) == {CRAWLS: 5}


def test_nothing_waits_for_what_a_broker_has_lost(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}) == {}
    # It ends before where it went then: there is nothing more to read.
    assert precedence.admit(3, 7, 7, {CRAWLS: 5}) == {CRAWLS: 5}


def test_after_a_rebalance_everything_is_read_again(precedence):
    assert precedence.admit(3, 7, 9, {CRAWLS: 5}) == {}
    precedence.forget()
    assert precedence.admit(3, 9, 12, {CRAWLS: 5}) == {}


class Consumer:
    """What the reader does, and where the first topic ends."""

    def __init__(self, position, end):
        self.at, self.end = {PAGES: position}, end
        self.paused = set()

    async def position(self, tp):
        return self.at[tp]

    async def end_offsets(self, partitions):
        return dict.fromkeys(partitions, self.end)

    def seek(self, tp, offset):
        self.at[tp] = offset

    def pause(self, *partitions):
        self.paused |= set(partitions)

    def resume(self, *partitions):
        self.paused -= set(partitions)


def crawl(offset):
    return ConsumerRecord("crawls", 3, offset, 0, 0, None, b"", None, 0, 0, ())


async def test_what_waits_is_not_fetched_again_and_again(precedence):
    consumer = Consumer(7, 9)
    fetched = {CRAWLS: [crawl(4), crawl(5)]}
    await precedence.hold_back(consumer, fetched)
    assert (fetched, consumer.at[CRAWLS], consumer.paused) == ({}, 4, {CRAWLS})
    consumer.at[PAGES] = 8
    await precedence.hold_back(consumer, {})
    assert consumer.paused == {CRAWLS}
    consumer.at[PAGES] = 9
    await precedence.hold_back(consumer, {})
    assert consumer.paused == set()
    fetched = {CRAWLS: [crawl(4), crawl(5)]}
    await precedence.hold_back(consumer, fetched)
    assert len(fetched[CRAWLS]) == 2


async def test_the_end_is_asked_for_when_the_records_are_there(precedence):
    """What a fetch said before may be older than they are, whatever the clocks say."""
    consumer = Consumer(7, 8)
    consumer.highwater = consumer.last_stable_offset = lambda _: 7
    consumer.last_poll_timestamp = lambda _: 10**15
    fetched = {CRAWLS: [crawl(4)]}
    await precedence.hold_back(consumer, fetched)
    assert not fetched


async def test_what_waits_is_looked_at_again(precedence, monkeypatch):
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    consumer = Consumer(7, 9)
    await precedence.hold_back(consumer, {CRAWLS: [crawl(4)]})
    consumer.end = 7  # what there was more, the broker has lost
    await precedence.hold_back(consumer, {})
    assert consumer.paused == set()
    fetched = {CRAWLS: [crawl(4)]}
    await precedence.hold_back(consumer, fetched)
    assert fetched


async def test_all_that_waits_goes_on_once_one_topic_learns_that_the_wait_is_over(precedence):
    consumer = Consumer(7, 9)
    await precedence.hold_back(consumer, {CRAWLS: [crawl(4)]})
    assert consumer.paused == {CRAWLS}
    consumer.end = 7  # the topic was made anew, and is shorter
    signal = ConsumerRecord("signals", 3, 0, 0, 0, None, b"", None, 0, 0, ())
    fetched = {SIGNALS: [signal]}
    await precedence.hold_back(consumer, fetched)
    assert fetched
    assert consumer.paused == set()


async def test_a_partition_that_is_being_handed_out_is_left_alone(precedence):
    class Undecided(Consumer):
        async def position(self, _tp):
            await asyncio.Event().wait()

    fetched = {CRAWLS: [crawl(4)]}
    await precedence.hold_back(Undecided(7, 9), fetched)
    assert fetched


@pytest.mark.parametrize("topic", [CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_PARAMETERS])
async def test_all_that_is_said_of_pages_waits_for_them(topic):
    """What was learned of a page is announced once: to whom it comes too early it is lost."""
    settings = Settings(topic_prefix="mine-")
    pages = TopicPartition(settings.topic(PAGE_UPDATES.name), 3)
    about = TopicPartition(settings.topic(topic.name), 3)
    consumer = Consumer(7, 9)
    consumer.at[pages] = 7
    record = ConsumerRecord(about.topic, 3, 4, 0, 0, None, b"", None, 0, 0, ())
    precedence, fetched = Precedence.of_pages(settings), {about: [record]}
    await precedence.hold_back(consumer, fetched)
    assert not fetched
    consumer.at[pages] = 9
    fetched = {about: [record]}
    await precedence.hold_back(consumer, fetched)
    assert fetched
