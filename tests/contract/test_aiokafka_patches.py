"""The private parts of aiokafka that Freshet uses and replaces are those that it was written for.

A release that changes one of them fails here. Then read what has changed, see that
`shared/runtime/aiokafka_patches.py`, `refused_batches.py` and `committed_offsets.py` still do what
they say (`test_holding_back.py` and `test_refused_batches.py` run them against both brokers,
`test_asking_what_is_committed.py` against answers as they give them), and write down the new form.
"""

import asyncio
import hashlib
import importlib.metadata
import inspect
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.client import AIOKafkaClient
from aiokafka.conn import AIOKafkaConnection
from aiokafka.consumer.fetcher import Fetcher, FetchResult, PartitionRecords
from aiokafka.consumer.group_coordinator import (
    BaseCoordinator,
    CoordinatorGroupRebalance,
    GroupCoordinator,
)
from aiokafka.errors import NoError, RebalanceInProgressError
from aiokafka.producer.message_accumulator import MessageAccumulator
from aiokafka.producer.sender import Sender, SendProduceReqHandler
from aiokafka.producer.transaction_manager import TransactionManager
from aiokafka.protocol.group import JoinGroupRequest
from packaging.requirements import Requirement
from packaging.version import Version

from shared.runtime.aiokafka_patches import GroupMember, give_up_requests_after, hold_back

ROOT = Path(__file__).parents[2]

FORMS: dict[Callable[..., Any], str] = {
    GroupCoordinator._heartbeat_routine: "61d01028952239d0",
    GroupCoordinator._do_heartbeat: "dc1d6632aaa68e96",
    GroupCoordinator._send_req: "fa4b12e914ce9fcf",
    GroupCoordinator._do_fetch_commit_offsets: "b0f3598132715552",
    GroupCoordinator.fetch_committed_offsets: "6c049c7379165952",
    GroupCoordinator.coordinator_dead: "ba1eda0254af8dfe",
    GroupCoordinator._lookup_assignor: "5b6704580d82ea4d",
    GroupCoordinator._perform_assignment: "a5cf61fa97320199",
    GroupCoordinator.request_rejoin: "f70a261c91c38cb5",
    BaseCoordinator._handle_metadata_update: "b2832b6d82bea7c4",
    CoordinatorGroupRebalance.perform_group_join: "ff2c2109b2e9868d",
    JoinGroupRequest.__init__: "08cf1df3c36c67da",
    PartitionRecords.__init__: "8ec1c2ae6ea1af87",
    PartitionRecords._unpack_records: "b803e6d46480732c",
    FetchResult.getall: "3e717e30de5068d5",
    FetchResult.check_assignment: "b5340df67e3f330f",
    FetchResult._update_position: "83fb1473bf10027b",
    PartitionRecords._consumer_record: "e668541600b047ab",
    Fetcher._get_actions_per_node: "1dab2cf937d165d0",
    MessageAccumulator.drain_by_nodes: "fc995afbfc5718e2",
    MessageAccumulator.waiter: "052557b73c747c32",
    Sender._sender_routine: "2380dc5e333d9ebd",
    Sender._maybe_wait_for_pid: "577189636b56f6d9",
    Sender._send_produce_req: "aea01ae4b6c794cc",
    Sender.close: "f60b3d023d2526f4",
    SendProduceReqHandler.do: "2dccd3d56b1607fb",
    MessageAccumulator._pop_batch: "41cc98a298ef2628",
    TransactionManager.__init__: "0d4f62dbcd186a33",
    TransactionManager.increment_sequence_number: "0fce01d42f0ff3bc",
    TransactionManager.set_pid_and_epoch: "1e174622d40d330f",
    AIOKafkaClient._get_conn: "68ce5d8391719d33",
    AIOKafkaConnection._do_version_lookup: "f163772b18ad5f0e",
}
"""A function that is replaced, called, or calls what is replaced → how its source's SHA-256 begins.

As of aiokafka 0.14.0.
"""


TP = TopicPartition("topic", 0)


def bound() -> Requirement:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [found] = [r for r in map(Requirement, project["dependencies"]) if r.name == "aiokafka"]
    return found


def locked() -> Version:
    [found] = re.findall(
        r"^aiokafka==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
    return Version(found)


def test_no_release_comes_in_before_somebody_has_looked_at_it():
    at, next_minor = locked(), f"{locked().major}.{locked().minor + 1}"

    assert importlib.metadata.version("aiokafka") in bound().specifier
    assert str(at) in bound().specifier
    assert f"<{next_minor}" in {str(part) for part in bound().specifier}
    assert f"{next_minor}.0" not in bound().specifier


@pytest.mark.parametrize("function", FORMS, ids=lambda function: function.__qualname__)
def test_what_is_replaced_or_called_has_its_form(function):
    source = inspect.getsource(function)

    assert hashlib.sha256(source.encode()).hexdigest()[:16] == FORMS[function], source


class Coordinator(GroupCoordinator):
    """aiokafka's own heartbeat, and a broker that answers at once."""

    def __init__(self, *answers: int) -> None:
        self.group_id, self.generation, self.member_id = "group", 4, "member"
        self.coordinator_id, self._group_instance_id = 0, None
        self._client = self
        self._answers = list(answers)

    async def send(self, _node: int, _request: object, *, group: object) -> SimpleNamespace:
        return SimpleNamespace(error_code=self._answers.pop(0))

    def request_rejoin(self) -> None:
        """It is asked to; that is all."""


@pytest.mark.parametrize(
    ("heartbeat", "question", "is_told"),
    [
        (NoError, NoError, True),
        (NoError, RebalanceInProgressError, False),
        (RebalanceInProgressError, NoError, True),  # the group knows us while it decides
    ],
)
async def test_a_heartbeat_of_the_client_is_noticed(heartbeat, question, is_told):
    coordinator = Coordinator(heartbeat.errno, question.errno)
    told: list[float] = []
    member = GroupMember(SimpleNamespace(_coordinator=coordinator))
    member.watch_heartbeats(lambda: 7.0, told.append)

    assert member.generation == 4
    assert await coordinator._do_heartbeat()
    assert told == [7.0] * is_told


@pytest.fixture
async def producer():
    """Never started: its accumulator believes that a broker leads the topic."""
    made = AIOKafkaProducer(linger_ms=0)
    made._message_accumulator._cluster = SimpleNamespace(leader_for_partition=lambda _tp: 1)
    yield made
    made._closed = True  # it was never open


async def test_what_may_not_leave_stays_with_the_client(producer):
    accumulator = producer._message_accumulator
    allowed = False
    hold_back(producer, lambda: allowed)
    await accumulator.add_message(TP, None, b"x", 1.0)

    held, _ = accumulator.drain_by_nodes(ignore_nodes=set(), muted_partitions=set())
    assert not held
    # The sender sleeps on this: it must be woken, though nothing new has come.
    await asyncio.wait_for(accumulator.waiter(), 30)

    allowed = True
    drained, _ = accumulator.drain_by_nodes(ignore_nodes=set(), muted_partitions=set())
    assert list(drained[1]) == [TP]


async def test_requests_have_a_patience_of_their_own(producer):
    before = producer._request_timeout_ms

    give_up_requests_after(producer, 1.5)

    assert producer.client._request_timeout_ms == 1500
    assert producer._request_timeout_ms == before
