"""A frontier that stops or dies, and a broker that is away, lose nothing."""

import asyncio
import uuid

import grpc
import pytest
from frontier_client import known
from workers import reader

from deploy.local.kafka import LocalBroker
from services.frontier.api import urlfrontier_pb2 as api
from shared.contracts.codec import decode
from shared.contracts.messages import CrawlOutcome
from shared.contracts.topics import CRAWL_OUTCOMES

pytestmark = [pytest.mark.kafka, pytest.mark.slow(8)]

PAGES = [f"https://{host}.example/{n}" for host in "abcd" for n in range(10)]


@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_what_is_not_answered_is_handed_out_by_the_next_process(start, end):
    frontier = await start(alone=True)
    await frontier.ask(*PAGES)
    async with frontier.client() as client:
        got = await client.urls_until(20, max_urls_per_queue=5)
        answered = {info.url for info in got[:12]}
        assert set(await client.put(*(known(info) for info in got[:12]))) == answered
        held = asyncio.Event()

        async def items():
            yield known(got[12])
            await held.wait()

        stream = client.PutURLs(items())
        ack = await stream.read()
        assert got[12].url == ack.ID
        answered.add(got[12].url)
        if end == "killed":
            frontier.process.kill()
        else:
            frontier.process.terminate()
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stream.read()
        assert raised.value.code() == grpc.StatusCode.UNAVAILABLE
        held.set()
    if end == "stopped":
        assert frontier.process.stop() == 0

    again = await start(frontier_port=frontier.settings.frontier_port)
    async with again.client() as client:
        left = set(PAGES) - answered
        rest = {info.url: info for info in await client.urls_until(len(left))}
        while not left <= rest.keys():
            rest |= {info.url: info for info in await client.urls_until(1)}
        if end == "stopped":
            assert rest.keys() == left, "answered, and handed out all the same"
        await client.put(*(known(rest[url]) for url in left))
    assert (await again.outcomes(len(PAGES))).keys() == set(PAGES)


async def test_while_the_broker_is_away_nothing_is_acknowledged(start, scratch_dir):
    broker = LocalBroker(scratch_dir / f"frontier-{uuid.uuid4().hex[:8]}")
    broker.start()
    try:
        frontier = await start(bootstrap_servers=broker.bootstrap_servers)
        await frontier.ask(*PAGES[:4])
        async with frontier.client() as client:
            got = await client.urls_until(3, max_urls_per_queue=3)
            await frontier.waiting(1)
            broker.kill()
            acks = await client.put(*(known(info) for info in got))
            assert set(acks.values()) == {"FAIL"}
            await frontier.process.not_ready("no broker answers")
            acks = await client.put(*(known(info) for info in got))
            assert set(acks.values()) == {"FAIL"}
            assert [info.url for info in await client.urls()] == PAGES[3:4]
            broker.start()
            await frontier.process.ready()
            acks = await client.put(*(known(info) for info in got))
            assert set(acks.values()) == {"OK"}
        # What was sent before and not acknowledged may be there as well: once more does no harm.
    finally:
        broker.stop()


async def test_clients_that_cut_their_calls_off_lose_nothing_and_break_nothing(start):
    frontier = await start()
    await frontier.ask(*PAGES)
    async with frontier.client() as client:
        await client.urls_until(1, max_urls_per_queue=1, delay_requestable=1)
        for count in range(24):
            # Some are gone before anything came, others amid what comes.
            taking = client.GetURLs(api.GetParams(max_urls_per_queue=3, delay_requestable=1))
            for _ in range(count % 4):
                await taking.read()
            taking.cancel()
        got = {}
        while got.keys() != set(PAGES):
            for info in await client.urls_until(1, delay_requestable=1):
                got[info.url] = info
        for count, url in enumerate(PAGES[:20]):
            putting = client.PutURLs()
            await putting.write(known(got[url]))
            if count % 2:
                await putting.write(api.URLItem())
                await putting.read()
            putting.cancel()
        acks = await client.put(*(known(info) for info in got.values()))
        assert set(acks.values()) == {"OK"}
    async with reader(frontier.settings, CRAWL_OUTCOMES) as topic:
        records = await topic.until(
            lambda found: {outcome.url for outcome in map(_outcome, found)} == set(PAGES)
        )
    # What was sent before its call was cut off, and is sent again, is there twice: of one request.
    said = {(outcome.url, outcome.request_id) for outcome in map(_outcome, records)}
    assert len(said) == len(PAGES)
    assert frontier.process.stop() == 0
    assert "a call has failed" not in frontier.process.log
    assert "Traceback" not in frontier.process.log


def _outcome(record):
    return decode(CrawlOutcome, record.value)
