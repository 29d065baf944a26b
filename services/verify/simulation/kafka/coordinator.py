"""A member of a group as aiokafka is one: heartbeats, joining anew, giving up who does not poll.

What it does when follows aiokafka 0.14 (`aiokafka.consumer.group_coordinator`) step by step; its
names are kept where our code uses them.
"""

import asyncio
import copy
from collections.abc import Sequence
from typing import Any, Final, Protocol

import structlog
from aiokafka import TopicPartition
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import KafkaError

from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.kafka.groups import Asking, Group, Joined
from services.verify.simulation.kafka.network import Network
from shared.runtime.striped import common_count

log = structlog.get_logger(__name__)

BACKOFF_SECONDS: Final = 0.1

JOIN_SECONDS: Final = 20.0
"""A group that decides may keep its members waiting for so long."""

_NO_GENERATION: Final = -1


class Fenced(KafkaError):  # type: ignore[misc]  # aiokafka is untyped
    """Another member has come under our instance's name; aiokafka takes it for final."""


class Client(Protocol):
    """What a member needs of its consumer."""

    broker: Broker
    network: Network
    listener: Any

    @property
    def idle_seconds(self) -> float:
        """For how long nobody has polled."""
        ...

    def begin_reassignment(self) -> None:
        """Nothing is handed out until the group has decided."""
        ...

    def assign_from_group(self, tps: list[TopicPartition]) -> None:
        """The group has decided."""
        ...

    def fail(self, error: KafkaError) -> None:
        """Let whoever polls next see an error."""
        ...

    def partitions_for_topic(self, topic: str) -> set[int]:
        """Which partitions there are, as far as is known."""
        ...


class Answer:
    """What `_send_req` returns."""

    def __init__(self, error_code: int) -> None:
        self.error_code = error_code


class Coordinator:
    """The part of a consumer that talks to its group."""

    def __init__(
        self,
        client: Client,
        group_id: str,
        instance: str,
        session_seconds: float,
        heartbeat_seconds: float,
        poll_seconds: float,
        assignors: Sequence[Any] = (),
    ) -> None:
        self.group_id = group_id
        self.generation = _NO_GENERATION
        self.member_id = ""
        self._group_instance_id = instance
        self._client = client
        self._group = Group(group_id)
        self._topics: list[str] = []
        self._assignors = assignors
        self._seen = 0
        """So many partitions of each topic were known when the member last looked."""
        self._session_seconds = session_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._poll_seconds = poll_seconds
        self._rejoin = asyncio.Event()
        self._rejoin.set()
        self._is_prepared = False
        self._is_unasked = False
        """Whether we join anew of our own accord."""
        self._assigned: tuple[int, ...] | None = None
        self._beating: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, topics: list[str]) -> None:
        """Begin to join, for some topics of equally many partitions."""
        self._topics = topics
        self._group = self._client.broker.groups.get(self.group_id)
        self._seen = self._count()
        self._task = asyncio.create_task(self._coordinate())

    def _count(self) -> int:
        return common_count(self._client, self._topics)

    def look_at_partitions(self) -> None:
        """Join anew if more partitions are known than before; nothing comes of it but where we lead
        the group."""
        if self._topics and self._count() != self._seen:
            self._seen = self._count()
            self.request_rejoin()

    def request_rejoin(self) -> None:
        """Join anew, though the group has not asked for it."""
        self._is_unasked = True
        self._rejoin.set()

    async def close(self) -> None:
        """End. A static member says nothing of it."""
        for task in (self._task, self._beating):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    async def _coordinate(self) -> None:
        while True:
            await self._rejoin.wait()
            try:
                await self._join()
            except KafkaError as error:
                self._client.fail(copy.copy(error))
                return

    async def _join(self) -> None:
        if not self._is_prepared:
            self._client.begin_reassignment()
            await self._client.listener.on_partitions_revoked(self._tps())
            self._is_prepared = True
        await self._stop_beating()
        if self._assigned is not None and self._client.idle_seconds >= self._poll_seconds:
            await asyncio.sleep(BACKOFF_SECONDS)
            return
        joined = await self._ask_to_join()
        if joined is None:
            await asyncio.sleep(BACKOFF_SECONDS)
            return
        self.generation, self.member_id = joined.generation, joined.member_id
        self._rejoin.clear()
        self._is_unasked = False
        self._assigned = joined.partitions
        self._seen = self._count()
        for assignor in self._assignors:
            shared = str(joined.shared).encode()
            assignor.on_assignment(ConsumerProtocolMemberAssignment(0, [], shared))
        self._is_prepared = False
        self._client.assign_from_group(self._tps())
        try:
            await self._client.listener.on_partitions_assigned(self._tps())
        except Exception:
            # aiokafka says so, and goes on as if nothing had been.
            log.exception("a listener has failed")
        self._beating = asyncio.create_task(self._beat())

    async def _ask_to_join(self) -> Joined | None:
        groups = self._client.broker.groups
        asking = Asking(
            self._group_instance_id,
            self.member_id,
            self._session_seconds,
            self._count,
            is_unasked=self._is_unasked,
        )

        def join() -> Any:
            return groups.join(self._group, asking)

        try:
            answer: Any = await self._client.network.ask(join, JOIN_SECONDS)
        except Fenced:
            raise
        except KafkaError:
            return None
        if isinstance(answer, Joined):
            return answer
        if answer == "fenced":
            raise Fenced(self._group_instance_id)
        self._reset()
        return None

    def _tps(self) -> list[TopicPartition]:
        return [TopicPartition(t, p) for t in self._topics for p in self._assigned or ()]

    def _reset(self) -> None:
        self.generation, self.member_id = _NO_GENERATION, ""
        self._rejoin.set()

    async def _stop_beating(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.wait([self._beating])
            self._beating = None

    async def _beat(self) -> None:
        while self.member_id:
            await asyncio.sleep(
                min(
                    self._heartbeat_seconds,
                    max(self._poll_seconds - self._client.idle_seconds, BACKOFF_SECONDS),
                )
            )
            try:
                await self._do_heartbeat()
            except KafkaError as error:
                self._client.fail(error)
                return
            if self._client.idle_seconds >= self._poll_seconds:
                # A static member does not tell the group that it leaves.
                self._reset()

    async def _do_heartbeat(self) -> bool:
        groups, generation, member_id = self._client.broker.groups, self.generation, self.member_id
        try:
            answer = await self._client.network.ask(
                lambda: groups.heartbeat(
                    self._group, self._group_instance_id, member_id, generation
                )
            )
        except KafkaError:
            return False
        if answer == "ok":
            return True
        if answer == "rebalancing":
            self._rejoin.set()
            return True
        if answer == "fenced":
            raise Fenced(self._group_instance_id)
        self._reset()
        return False

    def _lookup_assignor(self, name: str) -> Any:
        """Nobody is asked: the model of the group shares by itself."""
        raise NotImplementedError(name)

    async def _send_req(self, request: Any) -> Answer:  # noqa: ARG002 - one kind is ever sent
        """Ask which partitions the group has given us: the one question that our code asks.

        Raises:
            KafkaError: there is no answer.
        """
        groups, generation, member_id = self._client.broker.groups, self.generation, self.member_id
        known = await self._client.network.ask(
            lambda: groups.knows(self._group, self._group_instance_id, member_id, generation)
        )
        return Answer(0 if known else 25)
