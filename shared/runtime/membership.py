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

from collections.abc import Callable
from typing import Final

from aiokafka import AIOKafkaConsumer

from shared.runtime.aiokafka_patches import GroupMember
from shared.runtime.wall_time import steady

SURE_SHARE: Final = 0.75
"""Of the session timeout; the rest is for what is on its way to the broker."""

NO_GENERATION: Final = -2


class Membership:
    """A member's claim on its partitions, by a clock that goes on while the machine sleeps: others
    may have been given them meanwhile."""

    def __init__(self, session_timeout_seconds: float, now: Callable[[], float] = steady) -> None:
        self._sure_seconds = SURE_SHARE * session_timeout_seconds
        self._now = now
        self._renewed_at = -float("inf")
        self._member: GroupMember | None = None
        self._generation = NO_GENERATION
        self.was_unsure = False
        """Whether there was a time in which they may have been another's, or nobody could be read
        from, that whoever has set this to False does not know of."""

    @property
    def is_sure(self) -> bool:
        """Whether the partitions that the group gave us are still ours."""
        is_member = self._member is not None and self._member.generation >= 0
        return is_member and self._now() - self._renewed_at < self._sure_seconds

    def joined(self) -> bool:
        """Note that the group has decided.

        Returns:
            whether nobody else can have had our partitions since it decided last. False: it has
            decided without us in between.
        """
        if self._member is None:
            raise RuntimeError("no consumer is watched yet")
        before, self._generation = self._generation, self._member.generation
        self.renew()
        return self._generation - before in (0, 1)

    def renew(self, at: float | None = None) -> None:
        """The broker has heard us: we were there at a time; None: now."""
        self.was_unsure |= self._now() - self._renewed_at >= self._sure_seconds
        self._renewed_at = max(self._renewed_at, self._now() if at is None else at)

    def watch(self, consumer: AIOKafkaConsumer) -> None:
        """Note the heartbeats of a started consumer whose group knows it as a member."""
        self._member = GroupMember(consumer)
        self._member.watch_heartbeats(self._now, self.renew)
