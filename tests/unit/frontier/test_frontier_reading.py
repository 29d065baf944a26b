"""What is answered is committed: before a rebalance, and again where the broker refused it."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import CommitFailedError

from services.frontier import reading
from services.frontier.book import Book
from services.frontier.reading import RequestReader
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings

HERE = TopicPartition("crawl-requests", 3)


class Consumer:
    """Notes what is committed."""

    def __init__(self):
        self.committed = []
        self.refuses = False

    async def commit(self, offsets):
        if self.refuses:
            raise CommitFailedError
        self.committed.append(offsets)


@pytest.fixture
def consumer():
    return Consumer()


@pytest.fixture
def reader(consumer, monkeypatch):
    """One that is done with two records."""
    monkeypatch.setattr(reading, "make_consumer", lambda *_: consumer)
    book = Book(100)
    for offset in range(2):
        book.pass_over(HERE.partition, offset)
    return RequestReader(Settings(), book, ManualClock(1.7e9))


async def test_what_is_done_is_committed_before_partitions_go_to_another(reader, consumer):
    await reader.on_partitions_revoked([HERE])
    assert consumer.committed == [{HERE: 2}]


async def test_what_the_broker_did_not_take_is_committed_later_and_once(reader, consumer):
    consumer.refuses = True
    await reader._commit()
    consumer.refuses = False
    await reader._commit()
    await reader._commit()
    assert consumer.committed == [{HERE: 2}]
