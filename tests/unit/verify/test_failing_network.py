"""The network of a verification carries, stalls and cuts the connections of one worker."""

import asyncio
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from deploy.local.process import free_port
from services.verify.network import Network


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(1000):
        writer.write(chunk)
    writer.close()


def first_request(client: str) -> bytes:
    body = struct.pack(">hhih", 18, 0, 1, len(client)) + client.encode()
    return struct.pack(">i", len(body)) + body


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[tuple[Network, int]]:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made, port = Network(), free_port()
    await made.open_kafka(port, server.sockets[0].getsockname()[1])
    yield made, port
    await made.close()
    server.close()


async def connected(port: int, client: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    hello = first_request(f"freshet-{client}")
    writer.write(hello)
    assert await asyncio.wait_for(reader.readexactly(len(hello)), 10) == hello
    return reader, writer


async def test_a_stall_holds_one_worker_up_and_loses_nothing(network: tuple[Network, int]) -> None:
    made, port = network
    one, other = await connected(port, "one"), await connected(port, "other")

    made.link("one@kafka").stall()
    one[1].write(b"waits")
    other[1].write(b"flows")

    assert await asyncio.wait_for(other[0].readexactly(5), 10) == b"flows"
    held_up = asyncio.ensure_future(one[0].readexactly(5))
    done, _ = await asyncio.wait([held_up], timeout=0.2)
    assert not done
    made.restore()
    assert await asyncio.wait_for(held_up, 10) == b"waits"
    for _, writer in (one, other):
        writer.close()


async def test_a_cut_ends_connections_and_keeps_new_ones_out(network: tuple[Network, int]) -> None:
    made, port = network
    reader, writer = await connected(port, "one")

    made.link("one@kafka").cut()

    with pytest.raises((ConnectionError, AssertionError)):
        assert await asyncio.wait_for(reader.read(1), 10)
    _, another = await asyncio.open_connection("127.0.0.1", port)
    another.write(first_request("freshet-one"))
    made.link("one@kafka").restore()
    _, last = await connected(port, "one")
    for each in (writer, another, last):
        each.close()
