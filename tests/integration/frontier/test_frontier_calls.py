"""A fleet that speaks URLFrontier's API crawls what schedulers ask for."""

import asyncio
import time

import grpc
import pytest
from frontier_client import known
from workers import reader

from services.frontier.api import urlfrontier_pb2 as api
from shared.contracts.codec import decode
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS

pytestmark = [pytest.mark.kafka, pytest.mark.slow(3)]

PAGES = [f"https://{host}.example/{n}" for host in "abc" for n in range(4)]


async def test_each_request_is_handed_out_once_and_its_answer_is_stored(start):
    frontier = await start()
    ids = dict(zip(PAGES, await frontier.ask(*PAGES), strict=True))
    async with frontier.client() as client:
        got = await client.urls_until(len(PAGES), max_urls_per_queue=2, max_queues=2)
        assert sorted(info.url for info in got) == sorted(PAGES)
        assert {info.key for info in got} == {"a.example", "b.example", "c.example"}
        assert await client.urls() == []

        acks = await client.put(*(known(info, signature="d1") for info in got))

    assert acks == dict.fromkeys(PAGES, "OK")
    outcomes = await frontier.outcomes(len(PAGES))
    assert {url: outcome.request_id for url, outcome in outcomes.items()} == ids
    assert {outcome.digest for outcome in outcomes.values()} == {"d1"}


async def test_what_a_crawl_found_is_told_by_its_metadata(start):
    frontier = await start()
    said = {
        "https://a.example/same": {"fetch_statusCode": "304"},
        "https://a.example/none": {"fetch_statusCode": "404"},
        "https://a.example/busy": {"fetch_statusCode": "503", "protocol_retry--after": "90"},
        "https://a.example/old": {"fetch_statusCode": "301", "freshet_redirected--to": "young"},
        "https://a.example/secret": {"error_cause": "robots.txt"},
        "https://a.example/new": {"freshet_result": "changed"},
        "https://a.example/lost": {"fetch_exception": "time-out"},
    }
    await frontier.ask(*said)
    async with frontier.client() as client:
        got = await client.urls_until(len(said))
        acks = await client.put(*(known(info, **said[info.url]) for info in got))

    assert set(acks.values()) == {"OK"}
    outcomes = await frontier.outcomes(len(said))
    found = {url.rpartition("/")[2]: outcome for url, outcome in outcomes.items()}
    assert {name: outcome.result for name, outcome in found.items()} == {
        "same": "not_modified",
        "old": "redirected",
        "secret": "disallowed",
        "none": "gone",
        "busy": "failed",
        "new": "changed",
        "lost": "failed",
    }
    assert found["old"].redirected_to == "https://a.example/young"
    assert (found["busy"].http_status, found["busy"].retry_after_seconds) == (503, 90.0)


async def test_a_host_is_blocked_and_delayed_by_messages_of_its_own(start):
    frontier = await start()
    until = int(time.time()) + 3600
    await frontier.ask("https://a.example/1", "https://b.example/1")
    async with frontier.client() as client:
        await client.BlockQueueUntil(api.BlockQueueParams(key="a.example", time=until))
        await client.SetDelay(api.QueueDelayParams(key="B.example", delay_requestable=7))
        got = await client.urls_until(1)
        assert [info.key for info in got + await client.urls()] == ["b.example"]
        # Schedulers know of the block then, so an operator has ended it.
        await frontier.ask("https://a.example/2", later=20.0)
        assert [info.url for info in await client.urls_until(1)] == ["https://a.example/2"]
        await client.BlockQueueUntil(api.BlockQueueParams(key="a.example"))
        assert [info.key for info in await client.urls_until(1)] == ["a.example"]

    async with reader(frontier.settings, HOST_LIMITS) as topic:
        records = await topic.until(lambda got: len(got) >= 3)
    said = sorted(
        (decode(HostLimit, record.value) for record in records), key=lambda limit: limit.host
    )
    assert said == [
        HostLimit("a.example", blocked_until=float(until), only="block"),
        HostLimit("a.example", only="block"),
        HostLimit("b.example", crawl_delay_seconds=7.0, only="crawl-delay"),
    ]


async def test_an_inactive_frontier_hands_nothing_out_and_takes_answers(start):
    frontier = await start()
    await frontier.ask("https://a.example/1")
    async with frontier.client() as client:
        [info] = await client.urls_until(1)
        await client.SetActive(api.Active(state=False))
        await frontier.ask("https://a.example/2")
        assert not (await client.GetActive(api.Local())).state
        assert await client.put(known(info)) == {info.url: "OK"}
        assert await client.urls() == []
        await client.SetActive(api.Active(state=True))
        assert (await client.GetActive(api.Local())).state
        assert [again.url for again in await client.urls_until(1)] == ["https://a.example/2"]


async def test_a_request_is_handed_out_again_after_its_delay_and_not_after_its_deadline(start):
    frontier = await start()
    await frontier.ask("https://a.example/1")
    await frontier.ask("https://a.example/late", seconds=-1)
    async with frontier.client() as client:
        first = await client.urls_until(1, delay_requestable=1)
        again = await client.urls_until(1, delay_requestable=1)
        assert [info.url for info in first + again] == ["https://a.example/1"] * 2
        assert first[0].metadata == again[0].metadata

    await frontier.ask("https://b.example/1", seconds=2)
    async with frontier.client() as client:
        [info] = await client.urls_until(1, key="b.example")
        await asyncio.sleep(4)
        assert await client.urls(key="b.example") == []
        assert await client.put(known(info)) == {info.url: "OK"}


async def test_the_frontier_names_itself_its_crawl_and_its_logs(start):
    frontier = await start()
    async with frontier.client() as client:
        assert list((await client.ListNodes(api.Empty())).values) == [frontier.address]
        assert list((await client.ListCrawls(api.Local())).values) == ["DEFAULT"]
        await client.SetLogLevel(api.LogLevelParams(package="services.frontier", level="DEBUG"))
        with pytest.raises(grpc.aio.AioRpcError, match="no part has this name"):
            await client.SetLogLevel(api.LogLevelParams(package="com.example", level="DEBUG"))


BAD = {
    "another crawl": ("CountURLs", api.CountUrlParams(crawlID="news"), "INVALID_ARGUMENT"),
    "no host": ("BlockQueueUntil", api.BlockQueueParams(key="a b"), "INVALID_ARGUMENT"),
    "no key": ("BlockQueueUntil", api.BlockQueueParams(time=9), "INVALID_ARGUMENT"),
    "milliseconds": (
        "BlockQueueUntil",
        api.BlockQueueParams(key="a.example", time=1_700_000_000_000),
        "INVALID_ARGUMENT",
    ),
    "a delay of all": ("SetDelay", api.QueueDelayParams(delay_requestable=1), "UNIMPLEMENTED"),
    "a delay of months": (
        "SetDelay",
        api.QueueDelayParams(key="a.example", delay_requestable=1 << 31),
        "INVALID_ARGUMENT",
    ),
    "no URL": ("GetURLStatus", api.URLStatusRequest(url="nowhere"), "INVALID_ARGUMENT"),
    "a limit of URLs": ("SetCrawlLimit", api.CrawlLimitParams(key="a"), "UNIMPLEMENTED"),
    "a purge": ("PurgeURLs", api.PurgeUrlParams(days=1), "UNIMPLEMENTED"),
    "a queue's end": ("DeleteQueue", api.QueueWithinCrawlParams(key="a"), "UNIMPLEMENTED"),
    "everything's end": ("DeleteCrawl", api.DeleteCrawlMessage(), "UNIMPLEMENTED"),
    "a database that is away": ("GetStats", api.QueueWithinCrawlParams(), "UNAVAILABLE"),
    "no level": ("SetLogLevel", api.LogLevelParams(level=99), "INVALID_ARGUMENT"),
    "in no URL": ("CountURLs", api.CountUrlParams(filter="a\0"), "INVALID_ARGUMENT"),
    "too long": ("GetURLStatus", api.URLStatusRequest(url="x" * 70_000), "RESOURCE_EXHAUSTED"),
}


NO_MESSAGES = [b"\xff\xff\xff", b"\x00", b"GET / HTTP/1.1", b"\x1b[2J" * 9]


async def test_bytes_that_are_no_message_are_their_sender_s_fault(start):
    frontier = await start()
    url = "https://a.example/"
    sound = known(api.URLInfo(url=url)).SerializeToString()
    async with grpc.aio.insecure_channel(frontier.address) as channel:
        name = "/urlfrontier.URLFrontier/"
        put = channel.stream_stream(f"{name}PutURLs")
        batches = channel.stream_stream(f"{name}PutDiscovered")
        get = channel.unary_stream(f"{name}GetURLs")
        count = channel.unary_unary(f"{name}CountURLs")
        for sent in NO_MESSAGES:
            putting = put(iter([sound, sent]))
            # What came before is taken.
            assert api.AckMessage.FromString(await putting.read()).status == api.AckMessage.OK
            for call in (putting, batches(iter([sent])), get(sent), count(sent)):
                with pytest.raises(grpc.aio.AioRpcError, match="it cannot be read: ") as raised:
                    await (call.read() if hasattr(call, "read") else call)
                assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "Traceback" not in frontier.process.log
    assert "a call has failed" not in frontier.process.log
    text = (await frontier.process.get("/metrics"))[1].decode()
    said = 'freshet_frontier_calls_total{method="PutURLs",status="INVALID_ARGUMENT"}'
    assert f"{said} {float(len(NO_MESSAGES))}" in text


async def test_what_cannot_be_done_is_refused_with_a_reason(start):
    frontier = await start(frontier_max_message_bytes=64 * 1024)
    async with frontier.client() as client:
        for name, (method, message, code) in BAD.items():
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await getattr(client, method)(message)
            assert raised.value.code() == grpc.StatusCode[code], name
            assert len(raised.value.details()) > 20, name
        url = "https://a.example/"
        bad = [
            api.URLItem(ID="neither"),
            known(api.URLInfo(url="ftp://a.example/")),
            known(api.URLInfo(url="https://a.example/" + 2048 * "x")),
            known(api.URLInfo(url=url, crawlID="news")),
            api.URLItem(discovered=api.DiscoveredURLItem(info=api.URLInfo(url=url)), ID="new"),
        ]
        acks = await client.put(*bad)
        assert set(acks.values()) == {"SKIPPED"}
        assert acks.keys() >= {"neither", "new", "ftp://a.example/"}
        batch = api.DiscoveredBatch(ID="b", items=[api.URLInfo(url=url), api.URLInfo()])
        [ack] = [ack async for ack in client.PutDiscovered(iter([batch]))]
        assert (ack.ID, list(ack.statuses)) == ("b", [api.AckMessage.SKIPPED] * 2)
        # And it goes on.
        assert await client.put(known(api.URLInfo(url=url))) == {url: "OK"}
    status, text = await frontier.process.get("/metrics")
    assert status == 200
    assert b'freshet_frontier_calls_total{method="GetStats",status="UNAVAILABLE"} 1.0' in text
