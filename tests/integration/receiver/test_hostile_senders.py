"""Senders who mean harm: they get nothing, and nobody else notices."""

import asyncio
import contextlib
import gzip
import json

import aiohttp
import pytest
from pydantic import SecretStr

pytestmark = pytest.mark.slow(2)

LINE = b'{"url": "https://cms.example/a"}\n'
TOKENS = {"cms": SecretStr("token-1")}
AS_CMS = {"Authorization": "Bearer token-1"}
MOST = 40
"""Connections; of one address a tenth of them."""


async def answer_to(port: int, *parts: bytes) -> bytes:
    """All that comes back; the sender stops where it is closed on."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            with contextlib.suppress(OSError):
                await writer.drain()
        with contextlib.suppress(OSError):
            return await asyncio.wait_for(reader.read(65536), 60)
        return b""
    finally:
        writer.close()


async def test_bodies_that_are_made_to_do_harm_are_refused_and_others_are_served(start):
    receiver = await start(receiver_tokens=TOKENS)
    bomb = gzip.compress(b"\0" * 100_000_000)
    packed = AS_CMS | {"Content-Encoding": "gzip"}
    nested = b"[" * 1_000_000
    laughs = b'<!DOCTYPE a [<!ENTITY b "c">]><methodCall>&b;</methodCall>'
    batch = AS_CMS | {"Content-Type": "application/cloudevents-batch+json"}
    deep = json.dumps({"host": "a.example", "key": "x" * 8}).encode()[:-1] + b', "urlList": '
    for path, body, headers, status in (
        ("/signals", bomb, packed, 413),
        ("/signals", nested, AS_CMS, 400),
        ("/events", nested, batch, 400),
        ("/indexnow", deep + nested, {}, 400),
        ("/indexnow", b'{"urlList": ["\xff"]}', {}, 400),
        ("/RPC2", laughs, {}, 200),
        ("/RPC2", b"<a>" * 100_000, {}, 200),
        ("/nowhere", b"", {}, 404),
    ):
        found, text = await receiver.post(path, body, headers=headers)
        assert found == status, (path, text[:200])
        if path == "/RPC2":
            assert "<boolean>1</boolean>" in text
        assert (await receiver.post("/signals", LINE, headers=AS_CMS))[0] == 200
    assert (await receiver.get("/signals"))[0] == 405
    # Nothing of its inside is on the open port.
    for path in ("/metrics", "/healthz", "/readyz", "/websub/" + "0" * 32):
        assert (await receiver.get(path))[0] == 404
    # A hundred megabytes are not read, said before or not.
    head = (
        b"POST /signals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer token-1\r\n"
        b"Content-Length: 100000000\r\n\r\n"
    )
    assert b" 413 " in await answer_to(receiver.port, head)
    chunked = head.replace(b"Content-Length: 100000000", b"Transfer-Encoding: chunked")
    chunk = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    assert b" 413 " in await answer_to(receiver.port, chunked, *[chunk] * 100)
    assert (await receiver.post("/signals", LINE, headers=AS_CMS))[0] == 200


async def test_an_address_that_opens_many_connections_gets_its_part_and_no_more(start):
    receiver = await start(receiver_tokens=TOKENS, receiver_connections=MOST)
    opened = [await asyncio.open_connection("127.0.0.1", receiver.port) for _ in range(MOST)]
    try:
        refused = 0
        for reader, _ in opened[MOST // 10 :]:
            said = await asyncio.wait_for(reader.read(), 60)
            refused += b" 503 " in said and b"Retry-After" in said
        assert refused == MOST - MOST // 10
        # From elsewhere there is room.
        connector = aiohttp.TCPConnector(local_addr=("127.0.0.2", 0))
        async with (
            aiohttp.ClientSession(connector=connector) as client,
            client.post(f"{receiver.url}/signals", data=LINE, headers=AS_CMS) as answer,
        ):
            assert answer.status == 200
    finally:
        for _, writer in opened:
            writer.close()
    # Who has gone makes room.
    while (await posted(receiver)) != 200:
        await asyncio.sleep(0.05)


async def posted(receiver) -> int:
    with contextlib.suppress(aiohttp.ClientError):
        return (await receiver.post("/signals", LINE, headers=AS_CMS))[0]
    return 0
