"""Discovered URLs wait for the database, and no outcome waits for them."""

import asyncio
from collections import Counter
from functools import partial
from unittest.mock import Mock

import pytest

from services.frontier import service as module
from services.frontier.api.urlfrontier_pb2 import (
    AckMessage,
    DiscoveredURLItem,
    KnownURLItem,
    StringList,
    URLInfo,
    URLItem,
)
from services.frontier.book import Book
from services.frontier.names import Names
from services.frontier.putting import Putting
from services.frontier.room import Room
from services.frontier.service import MOST_DISCOVERED, MOST_PUT, Service

NAMES = Names("DEFAULT")


class Clock:
    def now(self):
        return 1.7e9


class Broker:
    async def send(self, *_):
        pass


class Discoveries:
    """A database that counts, and answers when it has."""

    def __init__(self):
        self.counted = asyncio.Event()
        self.waiting = 0

    async def take(self, url, depth):
        self.waiting += 1
        await self.counted.wait()
        return "added"


def discovered(number):
    return URLItem(discovered=DiscoveredURLItem(info=URLInfo(url=f"https://a.example/{number}")))


def known(number):
    said = {"signature": StringList(values=["s"])}
    info = URLInfo(url=f"https://b.example/{number}", metadata=said)
    return URLItem(known=KnownURLItem(info=info, refetchable_from_date=1))


@pytest.fixture
def discoveries():
    return Discoveries()


@pytest.fixture
def put(discoveries):
    """A function that puts items; the answers as they come."""

    def putting(items):
        async def sent():
            for item in items:
                yield item

        parts = Putting(Book(100), Broker(), discoveries, NAMES, Clock())
        service = Service("", Mock(), parts, Mock(), Mock(), NAMES, asyncio.Event())
        return service.methods()["PutURLs"](sent())

    return putting


async def test_outcomes_come_through_while_the_database_counts(put, discoveries, monkeypatch):
    monkeypatch.setattr(module, "Room", partial(Room, patience_seconds=0.0))
    # Far more than may wait, and outcomes among them and behind.
    items = [discovered(number) for number in range(3 * MOST_PUT)]
    items[MOST_PUT:MOST_PUT] = [known(0)]
    items.append(known(1))
    answers, outcomes, statuses = put(items), [], Counter()
    async with asyncio.timeout(30):
        while len(outcomes) < 2:
            answer = await anext(answers)
            if answer.ID.startswith("https://b.example/"):
                outcomes.append(answer)
            else:
                statuses[answer.status] += 1
    assert [answer.status for answer in outcomes] == [AckMessage.OK] * 2
    assert discoveries.waiting == MOST_DISCOVERED
    # What has no room is to be sent again.
    assert statuses == {AckMessage.FAIL: 3 * MOST_PUT - MOST_DISCOVERED}
    discoveries.counted.set()
    assert {answer.status async for answer in answers} == {AckMessage.OK}


async def test_while_the_database_is_quick_none_has_to_be_sent_again(put, discoveries):
    async def take(url, depth):
        await asyncio.sleep(0)
        return "added"

    discoveries.take = take
    items = [discovered(number) for number in range(3 * MOST_PUT)]
    statuses = Counter([answer.status async for answer in put(items)])
    assert statuses == {AckMessage.OK: 3 * MOST_PUT}


class Time:
    seconds = 0.0

    def __call__(self):
        return self.seconds


async def test_a_room_is_waited_for_as_long_as_others_leave_it():
    now = Time()
    room = Room(2, 1.0, now)
    assert await room.enter()
    now.seconds = 50.0
    # It is full from now on.
    assert await room.enter()
    now.seconds = 50.9
    first, second = (asyncio.create_task(room.enter()) for _ in range(2))
    await asyncio.sleep(0)
    room.leave()
    assert await first
    now.seconds = 51.8
    room.leave()
    assert await second
    now.seconds = 51.9
    third = asyncio.create_task(room.enter())
    await asyncio.sleep(0)
    assert not third.done()
    room.leave()
    assert await third
    now.seconds = 52.9
    assert not await room.enter()
    room.leave()
    assert await room.enter()


async def test_a_room_that_nobody_leaves_is_given_up():
    room = Room(1, 0.01)
    assert await room.enter()
    assert not await room.enter()
    assert not await room.enter()
    room.leave()
    assert await room.enter()
