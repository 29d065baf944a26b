"""A discoverer that dies in a batch: before the pages are sent, or before that is committed."""

import asyncio

import pytest
from workers import reader

from services.discoverer.handler import DiscoveryHandler
from services.discoverer.worker import GROUP, TOPICS
from shared.contracts.codec import decode, encode
from shared.contracts.messages import Discovery, PageUpdate
from shared.contracts.topics import DISCOVERIES, PAGE_UPDATES
from shared.discovery.admission import Admission
from shared.discovery.rules import DiscoveryRules
from shared.runtime.databases import databases_of
from shared.runtime.group_reading import GroupReader
from shared.store.questions import SharedQuestions
from shared.store.what_is_known import WhatIsKnown

pytestmark = [pytest.mark.kafka, pytest.mark.postgres, pytest.mark.slow(5)]

LINKS = [f"https://a.example/new/{number}" for number in range(20)]


class Killed(Exception):
    """The end of the process, there and then."""


async def killed(*_, **__):
    raise Killed


async def discover(publisher, alter, enough=None) -> None:
    """Run the parts of a discoverer, altered, until they die, or until there is enough."""
    settings = publisher.settings
    questions = SharedQuestions(databases_of(settings), "discoverer")
    admission = Admission(DiscoveryRules.of(settings), WhatIsKnown(questions))
    handler = DiscoveryHandler(settings, settings.clock(), publisher, admission)
    group = GroupReader(settings, GROUP, TOPICS, handler.handle, 0.05)
    alter(group)
    stopping = asyncio.Event()
    await group.start()
    running = asyncio.ensure_future(group.run(stopping))
    try:
        if enough is not None:
            await enough
            stopping.set()
        await asyncio.wait_for(running, 60)
    finally:
        running.cancel()
        await group.stop()
        questions.stop()


@pytest.fixture
async def publisher(local_broker, deploy):
    made = await deploy(local_broker)
    for url in LINKS:
        await made.send(DISCOVERIES, b"a.example", encode(Discovery("https://a.example/", [url])))
    await made.flush()
    return made


def said(records):
    messages = [decode(PageUpdate, record.value) for record in records]
    return [(message.url, message.updated_at) for message in messages]


async def test_who_dies_before_it_has_committed_says_the_same_again(publisher):
    with pytest.raises(Killed):
        await discover(publisher, lambda group: setattr(group, "_commit", killed))
    async with reader(publisher.settings, PAGE_UPDATES) as updates:
        first = said(await updates.until(lambda got: len(got) >= 1))
        # No estimator has applied anything, so nothing is known yet: all of it is said once more.
        both = lambda got: len(got) >= len(first) + len(LINKS)  # noqa: E731
        await discover(publisher, lambda group: None, updates.until(both))
        everything = said(updates.records)
    assert sorted({url for url, _ in everything}) == sorted(LINKS)
    assert len(set(everything)) == len(LINKS)


async def test_who_dies_before_it_has_sent_has_committed_nothing(publisher, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(publisher, "send_batches", killed)
        with pytest.raises(Killed):
            await discover(publisher, lambda group: None)
    async with reader(publisher.settings, PAGE_UPDATES) as updates:
        there = updates.until(lambda got: len(got) >= len(LINKS))
        await discover(publisher, lambda group: None, there)
        assert sorted(url for url, _ in said(updates.records)) == sorted(LINKS)
