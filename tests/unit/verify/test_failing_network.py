"""The network of a verification carries, stalls and cuts the connections of one worker."""

import asyncio
import gc
import socket
import struct
import warnings
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


async def test_a_one_way_stall_lets_requests_through_and_no_answers(tmp_path: Path) -> None:
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1000):
            heard.append(chunk)
            writer.write(chunk)
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    made, port = Network(), free_port()
    await made.open_kafka(port, server.sockets[0].getsockname()[1], "kafka-2")
    reader, writer = await connected(port, "one")
    made.link("one@kafka-2").stall("back")

    writer.write(b"question")
    answer = asyncio.ensure_future(reader.readexactly(8))
    while not heard[1:]:
        await asyncio.sleep(0.01)
    done, _ = await asyncio.wait([answer], timeout=0.2)

    assert not done
    assert heard[1:] == [b"question"]
    made.restore()
    assert await asyncio.wait_for(answer, 10) == b"question"
    writer.close()
    await made.close()
    server.close()


async def test_a_slow_link_carries_all_of_it_in_order(network: tuple[Network, int]) -> None:
    made, port = network
    reader, writer = await connected(port, "one")
    made.link("one@kafka").slow(0.01, lost=0.2)

    for number in range(20):
        writer.write(b"%02d" % number)
        await asyncio.sleep(0.002)

    expected = b"".join(b"%02d" % number for number in range(20))
    assert await asyncio.wait_for(reader.readexactly(40), 20) == expected
    writer.close()


@pytest.mark.parametrize(
    "client", ["broker-3-fetcher-0", "raft-client-3", "3", "broker-3-txn-marker-sender"]
)
async def test_the_nodes_of_a_cluster_are_told_apart(tmp_path: Path, client: str) -> None:
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    made, port = Network(), free_port()
    await made.open_kafka(port, server.sockets[0].getsockname()[1], "kafka-1")
    hello = first_request(client)
    made.links_around("kafka-3", ["kafka-1", "kafka-2"])

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(hello)
    assert await asyncio.wait_for(reader.readexactly(len(hello)), 10) == hello
    for link in made.links_around("kafka-3", ["kafka-1", "kafka-2"]):
        link.cut()

    with pytest.raises((ConnectionError, AssertionError)):
        assert await asyncio.wait_for(reader.read(1), 10)
    writer.close()
    await made.close()
    server.close()


@pytest.mark.parametrize("turns", range(8))
def test_who_comes_just_as_it_is_closed_leaves_nothing_open(turns: int) -> None:
    async def closed_so_soon() -> None:
        made, port = Network(), free_port()
        await made.open_kafka(port, 1)
        with socket.create_connection(("127.0.0.1", port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            await made.close()

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        asyncio.run(closed_so_soon())
        gc.collect()

    assert [str(one.message) for one in warned if "unclosed" in str(one.message)] == []
