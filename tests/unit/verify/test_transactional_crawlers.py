"""Crawlers in transactions: what is aborted is made anew, what may be committed is not."""

import asyncio
from types import SimpleNamespace

import pytest
from aiokafka.errors import KafkaConnectionError

from services.verify import transactions
from services.verify.transactions import Due, Transactions
from shared.contracts.topics import CRAWL_OUTCOMES
from shared.runtime import kafka
from shared.runtime.settings import load_settings


class Producer:
    """Writes a list; an abort takes back what stands there since the transaction began."""

    def __init__(self, topic, fails_in=None):
        self.topic, self.fails_in = topic, fails_in

    async def start(self):
        pass

    stop = start

    async def begin_transaction(self):
        self.kept = len(self.topic)

    async def send(self, _topic, value, _key, *, partition):
        if self.fails_in == "send":
            del self.topic[self.kept :]
            raise KafkaConnectionError
        self.topic.append((partition, value))
        place = asyncio.get_running_loop().create_future()
        place.set_result(SimpleNamespace(offset=len(self.topic) - 1))
        return place

    async def abort_transaction(self):
        del self.topic[self.kept :]

    async def commit_transaction(self):
        if self.fails_in == "commit":
            raise KafkaConnectionError


@pytest.fixture
def run(monkeypatch):
    """Sends three messages, one a transaction, and tells what came of them."""
    monkeypatch.setattr(transactions, "GATHER_SECONDS", 0.0)
    monkeypatch.setattr(transactions, "AGAIN_SECONDS", 0.0)

    async def send(fails_in=None):
        topic, committed, doubtful = [], [], []
        producers = iter([Producer(topic, fails_in), Producer(topic)])
        monkeypatch.setattr(kafka, "make_producer", lambda *_, **_more: next(producers))
        sender = Transactions(
            load_settings(),
            3,
            lambda due, offset: committed.append((due.value, offset)),
            lambda due, _why: doubtful.append(due.value),
        )
        running = asyncio.create_task(sender.run())
        for number in range(3):
            sender.add(Due(CRAWL_OUTCOMES, 1, b"h", b"%d" % number, 0.0))
            while sender.waiting:
                await asyncio.sleep(0)
        running.cancel()
        return [value for _, value in topic], committed, doubtful, sender.counts

    return send


async def test_what_is_aborted_is_made_anew(run, monkeypatch):
    monkeypatch.setattr(transactions, "ABORTED_SHARE", 0.5)

    topic, committed, doubtful, counts = await run()

    assert topic == [b"0", b"1", b"2"]
    assert committed == [(b"0", 0), (b"1", 1), (b"2", 2)]
    assert not doubtful
    assert counts["committed"] == 3
    assert counts["aborted"] > 0


async def test_what_could_not_be_sent_is_sent_by_the_next_producer(run, monkeypatch):
    monkeypatch.setattr(transactions, "ABORTED_SHARE", 0.0)

    topic, committed, doubtful, counts = await run("send")

    assert topic == [b"0", b"1", b"2"]
    assert [value for value, _ in committed] == topic
    assert not doubtful
    assert counts["failed"] == 1


async def test_what_may_be_committed_is_not_sent_again(run, monkeypatch):
    monkeypatch.setattr(transactions, "ABORTED_SHARE", 0.0)

    topic, committed, doubtful, _counts = await run("commit")

    assert topic == [b"0", b"1", b"2"]
    assert doubtful == [b"0"]
    assert [value for value, _ in committed] == [b"1", b"2"]
