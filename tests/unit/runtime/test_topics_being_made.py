"""A topic that is just being made is waited for: not all brokers know its partitions yet."""

from contextlib import asynccontextmanager

import pytest
from aiokafka.errors import LeaderNotAvailableError

from shared.contracts.topics import BANDWIDTH, CRAWL_REQUESTS
from shared.runtime import kafka
from shared.runtime.kafka import ensure_topics
from shared.runtime.settings import Settings


class Brokers:
    """Each of them lists the topics; how many partitions one has is known at some of the looks."""

    def __init__(self):
        self.unknown = {}

    async def list_topics(self):
        return [CRAWL_REQUESTS.name, BANDWIDTH.name]

    async def describe_topics(self, names):
        return [self._described(name, {CRAWL_REQUESTS.name: 64}.get(name, 1)) for name in names]

    def _described(self, name, partitions):
        if self.unknown.get(name, 0) > 0:
            self.unknown[name] -= 1
            return {
                "topic": name,
                "error_code": LeaderNotAvailableError.errno,
                "partitions": [],
            }
        return {"topic": name, "error_code": 0, "partitions": [{"leader": 1}] * partitions}


@pytest.fixture
def brokers(monkeypatch):
    made = Brokers()

    @asynccontextmanager
    async def administering(_settings):
        yield made

    async def nothing(*_, **_more):
        return []

    monkeypatch.setattr(kafka, "administering", administering)
    monkeypatch.setattr(kafka, "check_topics", nothing)
    return made


@pytest.mark.parametrize("topic", [CRAWL_REQUESTS, BANDWIDTH])
async def test_a_listed_topic_without_partitions_is_looked_at_again(brokers, topic):
    brokers.unknown[topic.name] = 2
    assert await ensure_topics(Settings(), (CRAWL_REQUESTS, BANDWIDTH)) == []
    assert brokers.unknown == {topic.name: 0}


async def test_whoever_is_out_of_patience_is_told_which_topic_it_is(brokers):
    brokers.unknown[CRAWL_REQUESTS.name] = 1
    with pytest.raises(LeaderNotAvailableError, match="no partitions yet of: crawl-requests"):
        await ensure_topics(Settings(), (CRAWL_REQUESTS,), patience_seconds=0.0)
