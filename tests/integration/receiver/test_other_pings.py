"""Weblogs' pings, CloudEvents and JSON lines over real HTTP; and a broker that is away."""

import asyncio
import time
import xmlrpc.client
from datetime import UTC, datetime, timedelta

import aiohttp
import psycopg
import pytest
from cloudevents.core.bindings.http import to_structured
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from pydantic import SecretStr
from workers import reader, settings_for, worker

from deploy.local.kafka import LocalBroker
from deploy.local.process import free_port
from shared.contracts.topics import SIGNALS
from shared.store.ping_accounts import PingNews, read_delays, write_pings

pytestmark = [pytest.mark.kafka, pytest.mark.slow(2)]

TOKENS = {"cms": SecretStr("token-1"), "shop": SecretStr("token-2")}
AS_CMS = {"Authorization": "Bearer token-1"}


async def test_each_kind_of_producer_has_a_source_and_a_key_of_its_own(start):
    receiver = await start(
        receiver_tokens=TOKENS,
        signal_source_keys={"cms": SecretStr("key-1"), "weblog-ping": SecretStr("key-2")},
    )
    with xmlrpc.client.ServerProxy(f"{receiver.url}/RPC2") as weblogs:
        ping = weblogs.weblogUpdates.ping
        answer = await asyncio.to_thread(ping, "A blog", "https://blog.example/")
        assert answer == {"flerror": False, "message": "Thanks for the ping."}
        answer = await asyncio.to_thread(ping, "A blog", "ftp://blog.example/")
        assert answer["flerror"]

    attributes = {"id": "1", "source": "/", "type": "x", "subject": "https://cms.example/a"}
    event = to_structured(CloudEvent(attributes, None), JSONFormat())
    headers = dict(event.headers)
    assert (await receiver.post("/events", event.body, headers=headers))[0] == 401
    assert (await receiver.post("/events", event.body, headers=headers | AS_CMS))[0] == 200

    lines = b'{"url": "https://shop.example/1", "source": "cms"}\n{"url": "none"}\n'
    for token in ("", "Bearer", "Bearer token-3", "Basic token-2"):
        status, _ = await receiver.post("/signals", lines, headers={"Authorization": token})
        assert status == 401
    as_shop = {"Authorization": "Bearer token-2"}
    status, text = await receiver.post("/signals", lines, headers=as_shop)
    assert status == 200
    assert '"accepted": 1, "refused": 1' in text
    assert (await receiver.post("/signals", b"x", headers=as_shop))[0] == 400

    async with reader(receiver.settings, SIGNALS) as topic:
        records = await topic.until(lambda got: len(got) >= 3)
    found = {s.source: s.url for s in await receiver.signals(3)}
    # The token says the source, whatever the line does.
    assert found == {
        "weblog-ping": "https://blog.example/",
        "cms": "https://cms.example/a",
        "shop": "https://shop.example/1",
    }
    keys = sorted(dict(record.headers).get("source-key", b"") for record in records)
    assert keys == [b"", b"key-1", b"key-2"]


async def test_what_the_ingester_would_refuse_is_refused_to_its_sender(start):
    receiver = await start(
        receiver_tokens=TOKENS, allow_private_hosts=False, signal_max_age_days=2.0
    )
    page, now = "https://cms.example/a", time.time()
    said = [
        ({"url": page, "observed_at": now + 3600.0}, "s in the future; at most 300 s are taken"),
        ({"url": page, "observed_at": now - 3 * 86_400.0}, "3.0 days ago; at most 2.0 days are"),
        ({"url": page, "observed_at": 1000.0 * now}, "looks like milliseconds"),
        ({"url": "http://localhost/x"}, "'localhost' is not on the public internet"),
    ]
    for line, reason in said:
        status, text = await receiver.post_json("/signals", line, headers=AS_CMS)
        assert status == 400
        assert '"accepted": 0, "refused": 1' in text
        assert reason in text
    attributes = {"id": "1", "source": "/", "type": "x", "subject": page}
    ahead = datetime.now(UTC) + timedelta(days=365)
    event = to_structured(CloudEvent(attributes | {"time": ahead}, None), JSONFormat())
    status, text = await receiver.post("/events", event.body, headers=dict(event.headers) | AS_CMS)
    assert status == 400
    assert "in the future" in text
    with xmlrpc.client.ServerProxy(f"{receiver.url}/RPC2") as weblogs:
        ping = weblogs.weblogUpdates.ping
        answer = await asyncio.to_thread(ping, "A blog", "http://localhost/x")
    assert answer["flerror"]
    assert "'localhost' is not on the public internet" in answer["message"]
    assert (await receiver.post_json("/signals", {"url": page}, headers=AS_CMS))[0] == 200
    assert [signal.url for signal in await receiver.signals(1)] == [page]


@pytest.mark.postgres
async def test_how_late_pings_are_is_written_down_by_source(start, migrated_url):
    receiver = await start(receiver_tokens=TOKENS, database_url=SecretStr(migrated_url))
    with psycopg.connect(migrated_url, autocommit=True) as connection:
        # Another receiver was there before.
        write_pings(connection, [PingNews("cms", 1, 1, 30.0)])
    changed_at = time.time() - 90.0
    line = f'{{"url": "https://cms.example/a", "observed_at": {changed_at}}}\n'.encode()
    other = b'{"url": "https://cms.example/b"}\n'
    assert (await receiver.post("/signals", line + other, headers=AS_CMS))[0] == 200
    assert receiver.process.stop() == 0
    with psycopg.connect(migrated_url) as connection:
        delays = read_delays(connection)
        counted = connection.execute("SELECT signals, exact_signals FROM ping_accounts").fetchall()
    assert counted == [(3, 2)]
    late = 2 * delays.pop("cms") - 30.0
    assert 90.0 <= late <= time.time() - changed_at
    assert delays == {}


async def test_a_ping_is_answered_when_the_broker_has_it_and_not_before(scratch_dir, tmp_path):
    broker = LocalBroker(scratch_dir / "receivers-own")
    broker.start()
    try:
        settings = settings_for(
            broker.bootstrap_servers,
            "receiver",
            receiver_port=free_port(),
            receiver_tokens={"cms": SecretStr("token-1")},
        )
        url = f"http://127.0.0.1:{settings.receiver_port}/signals"
        line = b'{"url": "https://cms.example/a"}\n'
        with worker("receiver", settings, tmp_path) as process:
            await process.ready()
            async with aiohttp.ClientSession(headers=AS_CMS) as client:
                broker.kill()
                async with client.post(url, data=line) as answer:
                    assert answer.status == 503
                    assert int(answer.headers["Retry-After"]) > 0
                await process.not_ready("broker")
                broker.start()
                await process.ready()
                async with client.post(url, data=line) as answer:
                    assert answer.status == 200
            process.kill()
        # It was answered, so it is there, whatever became of the receiver.
        async with reader(settings, SIGNALS) as topic:
            assert await topic.until(lambda got: got)
    finally:
        broker.stop()
