"""Requests that are nearly right: real frames with bytes changed, cut, or with absurd sizes."""

import contextlib
import socket
import struct
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.protocol.admin import CreateTopicsRequest_v1, DescribeConfigsRequest_v1
from aiokafka.protocol.commit import OffsetCommitRequest_v2, OffsetFetchRequest_v1
from aiokafka.protocol.fetch import FetchRequest_v4
from aiokafka.protocol.group import JoinGroupRequest_v2, SyncGroupRequest_v1
from aiokafka.protocol.metadata import MetadataRequest_v1
from aiokafka.protocol.offset import OffsetRequest_v1
from aiokafka.protocol.produce import ProduceRequest_v3
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deploy.local.kafka import LocalBroker

pytestmark = pytest.mark.kafka

REQUESTS = [
    MetadataRequest_v1(["t"]),
    ProduceRequest_v3(None, 1, 1000, [("t", [(0, b"x" * 70)])]),
    FetchRequest_v4(-1, 10, 1, 1000, 0, [("t", [(0, 0, 1000)])]),
    OffsetRequest_v1(-1, [("t", [(0, -1)])]),
    OffsetCommitRequest_v2("g", -1, "", -1, [("t", [(0, 5, "m")])]),
    OffsetFetchRequest_v1("g", [("t", [0])]),
    JoinGroupRequest_v2("g", 6000, 6000, "", "consumer", [("range", b"meta")]),
    SyncGroupRequest_v1("g", 1, "m", [("m", b"a")]),
    CreateTopicsRequest_v1([("bad name!", 1, 1, [], [("a", "b")])], 1000, True),
    DescribeConfigsRequest_v1([(2, "t", ["a"])], False),
]


@pytest.fixture(scope="module")
def broker_of_ours(scratch_dir: Path) -> Iterator[LocalBroker]:
    """A broker whose topics and groups nobody else minds."""
    made = LocalBroker(scratch_dir / f"frames-{uuid.uuid4().hex}")
    made.start()
    yield made
    made.stop()


def frame(request) -> bytes:
    head = struct.pack(">hhih", request.API_KEY, request.API_VERSION, 7, 4) + b"fuzz"
    return head + request.encode()


def answer(address: str, data: bytes) -> bytes:
    """What comes back, as far as it comes soon."""
    host, port = address.split(":")
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, int(port)), timeout=5) as connection,
    ):
        connection.sendall(data)
        connection.settimeout(0.05)
        return connection.recv(1 << 16)
    return b""


def is_alive(address: str) -> bool:
    host, port = address.split(":")
    data = frame(MetadataRequest_v1([]))
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(struct.pack(">i", len(data)) + data)
        return len(connection.recv(8)) > 0


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    request=st.sampled_from(REQUESTS),
    changes=st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    sizes=st.lists(st.tuples(st.integers(0, 60), st.sampled_from([-1, -2, 2**31 - 1, 10**6]))),
    cut=st.integers(0, 30),
)
def test_a_frame_that_is_nearly_right_costs_its_connection_at_most(
    broker_of_ours, request, changes, sizes, cut
):
    data = bytearray(frame(request))
    for at, value in changes:
        data[at % len(data)] = value
    for at, size in sizes[:2]:
        place = 14 + at
        if place + 4 <= len(data):
            data[place : place + 4] = struct.pack(">i", size)
    body = bytes(data[: len(data) - cut])
    answer(broker_of_ours.bootstrap_servers, struct.pack(">i", len(body)) + body)
    assert is_alive(broker_of_ours.bootstrap_servers)


def test_its_log_knows_of_no_fault(broker_of_ours):
    assert is_alive(broker_of_ours.bootstrap_servers)
    assert "a fault of the broker" not in broker_of_ours.log_path.read_text()
