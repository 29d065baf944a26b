"""How long a member of a consumer group may be sure that its partitions are nobody else's.

A broker gives a member's partitions away when it has not heard it for the session timeout. A member
that was paused, or cut off, does not know: what it sends then comes beside what the new owner
sends. So it goes by its own clock: from a heartbeat that the broker answered, counted from when it
was sent, the partitions are ours for a part of the session timeout. A heartbeat that is answered
later, in the same generation, proves that nobody had them in between.

But a broker that has just started, and is still reading its groups, says yes to every heartbeat, a
lost member's too. So what counts is the answer to the question behind it: which partitions the
group has given us in this generation.
"""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError
from aiokafka.protocol.group import SyncGroupRequest

SURE_SHARE: Final = 0.75
"""Of the session timeout; the rest is for what is on its way to the broker."""


ASK_SECONDS: Final = 0.1
"""Between two questions whether what is held back may go."""


NO_GENERATION: Final = -2


class Membership:
    """A member's claim on its partitions; monotonic time."""

    def __init__(
        self, session_timeout_seconds: float, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._sure_seconds = SURE_SHARE * session_timeout_seconds
        self._now = now
        self._renewed_at = -float("inf")
        self._coordinator: Any = None
        self._generation = NO_GENERATION

    @property
    def is_sure(self) -> bool:
        """Whether the partitions that the group gave us are still ours."""
        is_member = self._coordinator is not None and self._coordinator.generation >= 0
        return is_member and self._now() - self._renewed_at < self._sure_seconds

    def joined(self) -> bool:
        """Note that the group has decided.

        Returns:
            whether nobody else can have had our partitions since it decided last. False: it has
            decided without us in between.
        """
        before, self._generation = self._generation, self._coordinator.generation
        self.renew()
        return self._generation - before in (0, 1)

    def renew(self, at: float | None = None) -> None:
        """The broker has heard us: we were there at a time; None: now."""
        self._renewed_at = max(self._renewed_at, self._now() if at is None else at)

    def watch(self, consumer: AIOKafkaConsumer) -> None:
        """Note the heartbeats of a started consumer whose group knows it as a member."""
        # aiokafka tells nobody of its heartbeats.
        coordinator: Any = consumer._coordinator  # noqa: SLF001
        self._coordinator = coordinator
        beat = coordinator._do_heartbeat  # noqa: SLF001

        async def noted() -> bool:
            sent_at = self._now()
            answered: bool = await beat()
            if answered and await _is_known(coordinator):
                self.renew(sent_at)
            return answered

        coordinator._do_heartbeat = noted  # noqa: SLF001


async def _is_known(coordinator: Any) -> bool:
    """Whether the group, at rest in our generation, has us as a member.

    Asked of a group at rest, this changes nothing; and heartbeats end before a member joins anew,
    so it is never asked while our generation is still being decided.
    """
    question = SyncGroupRequest(
        coordinator.group_id,
        coordinator.generation,
        coordinator.member_id,
        coordinator._group_instance_id,  # noqa: SLF001
        [],
    )
    try:
        answer = await coordinator._send_req(question)  # noqa: SLF001
    except KafkaError:
        return False
    return bool(answer.error_code == 0)


def _end(waiter: "asyncio.Future[None]") -> None:
    if not waiter.done():
        waiter.set_result(None)


class _EveryNode(Collection[int]):
    """All brokers that there may be."""

    def __contains__(self, node: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 1


def give_up_requests_after(producer: AIOKafkaProducer, seconds: float) -> None:
    """Let a producer that is not started yet ask a silent broker again, on a new connection, after
    so long. How long messages may wait for a broker is another matter, and stays as it is."""
    client: Any = producer.client
    client._request_timeout_ms = int(1000 * seconds)  # noqa: SLF001 - one option sets both


def hold_back(producer: AIOKafkaProducer, may_send: Callable[[], bool]) -> None:
    """Let a started producer keep what it has while it may not send.

    It is asked each time that something is about to leave, retries too.
    """
    accumulator: Any = producer._message_accumulator  # noqa: SLF001 - there is no public hook
    drain = accumulator.drain_by_nodes

    def drain_if_allowed(ignore_nodes: Any, muted_partitions: Any = frozenset()) -> Any:
        if may_send():
            return drain(ignore_nodes=ignore_nodes, muted_partitions=muted_partitions)
        nothing = drain(ignore_nodes=_EveryNode(), muted_partitions=muted_partitions)
        waiter = accumulator.waiter()
        asyncio.get_running_loop().call_later(ASK_SECONDS, _end, waiter)
        return nothing

    accumulator.drain_by_nodes = drain_if_allowed
