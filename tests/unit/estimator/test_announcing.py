"""What the estimator publishes: who waits for it hears of its failure, who reads it takes it."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from aiokafka.errors import KafkaTimeoutError

from services.estimator.announcing import KafkaAnnouncer, Outbox
from services.estimator.decoding import Misplaced, Refused
from services.estimator.learning import News, assign, fit, news_again
from services.estimator.shard import Shard
from shared.contracts.codec import decode
from shared.contracts.identity import identify
from shared.contracts.messages import PageParameters
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings
from shared.store.owners import Announcing


class Producer:
    """Of a broker that has gone away: after a while it gives up what it has."""

    def __init__(self):
        self.waiting = []

    async def send(self, _topic, _value, **_options):
        delivered = asyncio.get_running_loop().create_future()
        self.waiting.append(delivered)
        return delivered

    async def flush(self):
        if self.waiting:
            await asyncio.wait(self.waiting)

    async def until_given_up(self, count):
        while len(self.waiting) < count:
            await asyncio.sleep(0)
        for delivered in self.waiting:
            delivered.set_exception(KafkaTimeoutError())


@pytest.fixture
def producer():
    return Producer()


@pytest.fixture
def announcer(producer):
    publisher = Publisher(Settings(partitions=8))
    publisher._producer = producer
    return KafkaAnnouncer(publisher)


def record(number):
    return SimpleNamespace(
        topic="page-signals",
        partition=3,
        offset=number,
        key=b"host",
        value=b"{}",
        timestamp=0,
        headers=(),
    )


async def test_each_of_several_lanes_hears_that_its_own_records_were_not_delivered(
    announcer, producer
):
    """Whoever does not hear of it makes a position durable behind what nobody has."""
    *heard, _ = await asyncio.gather(
        announcer.pass_on([Misplaced(record(1), 5)]),
        announcer.pass_on([Misplaced(record(2), 6), Misplaced(record(3), 7)]),
        announcer.publish({}, [Refused(record(4), "bad")]),
        announcer.publish({}, [Refused(record(5), "bad")]),
        producer.until_given_up(5),
        return_exceptions=True,
    )
    assert [type(error) for error in heard] == [KafkaTimeoutError] * 4


class Forgetful:
    """An announcer whose broker gives up what it is handed first."""

    def __init__(self):
        self.handed = []

    async def publish(self, announcements, refused):
        self.handed.append({place: list(part) for place, part in announcements.items()})
        if len(self.handed) == 1:
            raise KafkaTimeoutError
        return {}


async def test_what_was_not_delivered_is_announced_again_and_then_no_more():
    announcer = Forgetful()
    outbox = Outbox(announcer)
    outbox.add(3, News(Announcing.nothing(), [(b"a.example", b"page")], [(b"a.example", b"host")]))
    with pytest.raises(KafkaTimeoutError):
        await outbox.publish()
    await outbox.publish()
    await outbox.publish()
    everything = {
        ("page-parameters", 3): [(b"a.example", b"page")],
        ("host-parameters", 3): [(b"a.example", b"host")],
    }
    assert announcer.handed == [everything, everything]


@pytest.mark.parametrize("microseconds", [1, 10, 100])
def test_schedulers_take_what_is_learned_of_crawls_that_are_microseconds_apart(microseconds):
    page, row = identify("https://a.example/"), np.array([0])
    shard = Shard(0)
    shard.add_pages([(page, 0.0)])
    shard.rings.interval_days[0] = microseconds * 1e-6 / 86_400
    shard.rings.changed[0], shard.rings.seen[0] = 1, 16
    assign(shard, row, fit(shard, row))
    shard.pages["signal_evidence"] = 0.5
    about = Announcing(np.array([page.page_id]), np.empty(0, np.int64))
    [(_, value)] = news_again(shard, about, 0.0).pages
    assert decode(PageParameters, value).unsignalled_change_rate > 1e6
