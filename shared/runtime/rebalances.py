"""What a group decides about its partitions, as the loop that reads them has to know it."""

from collections.abc import Awaitable, Callable

import structlog
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition

from shared.runtime.membership import Membership

log = structlog.get_logger(__name__)

BeforeLeaving = Callable[[], Awaitable[None]]


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]  # aiokafka is untyped
    """Notes what the group decided; the reading loop acts on it between two batches."""

    def __init__(
        self,
        consumer: AIOKafkaConsumer,
        membership: Membership,
        before_leaving: BeforeLeaving | None,
    ) -> None:
        self._consumer = consumer
        self._membership = membership
        self._before_leaving = before_leaving
        self.assignment: set[TopicPartition] = set()
        self.generation = 0
        self.deciding = True
        self.was_left_out = False
        """Whether others may have had our partitions since the last decision that was followed."""
        self._new: set[int] = set()
        self._lost: set[int] = set()

    async def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:  # noqa: ARG002
        """The group begins to decide."""
        self.deciding = True
        self.generation += 1
        if self.assignment and self._before_leaving is not None:
            await self._before_leaving()

    async def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        """The group has decided."""
        # Nothing may be fetched before the handler has said from where; until then any position
        # will do, as the client would look for one of its own, and complain that there is none.
        self._consumer.pause(*assigned)
        for tp in assigned:
            self._consumer.seek(tp, 0)
        self.assignment = set(assigned)
        if not self._membership.joined():
            self.was_left_out = True
        self.deciding = False
        self.generation += 1

    def common_partitions(self) -> set[int]:
        """Numbers of partitions that are ours, in all topics of which any is.

        Where members of before share by range, and topics just get more partitions, one after the
        other, a partition of one topic may be ours and that of another somebody else's: nobody can
        do anything with that until the group has shared anew.
        """
        ours: dict[str, set[int]] = {}
        for tp in self.assignment:
            ours.setdefault(tp.topic, set()).add(tp.partition)
        return set.intersection(*ours.values()) if ours else set()

    def follows(self, new: set[int], lost: set[int]) -> None:
        """Note what is loaded and what is let go, to be said once the group stands by it."""
        self._new |= new
        self._lost |= lost

    def followed(self, held: int) -> None:
        """Say what came and what went since the last time: with what came of decisions that the
        group took back while they were followed.

        Args:
            held: how many partitions are loaded now.
        """
        new, lost = sorted(self._new), sorted(self._lost)
        log.info("partitions assigned", new=new, lost=lost, now=held)
        self._new, self._lost = set(), set()
