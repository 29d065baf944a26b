"""How a group shares its partitions: in stripes, so that new partitions move no old ones.

Kafka's range assignment cuts the partitions into runs. If partitions are added all runs get longer,
and nearly each of them begins elsewhere: all shards would be loaded by other members at the very
moment at which there are more of them to load. So partition p of every topic goes to member number
p mod m of m, in an order of members that does not change as long as they stay: what is added goes
to somebody, and nobody's old partition moves.

Partition p of every topic goes to the same member (shards need all their topics), and only once
each topic has it: topics get their partitions one after the other.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.protocol import (
    ConsumerProtocolMemberAssignment,
    ConsumerProtocolMemberMetadata,
)

_VERSION: Final = 0
_OF_THIS_LIFE: Final = re.compile(r"-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
"""What brokers put behind the name of a static member to tell its lives apart."""


def stripes(members: Iterable[str], count: int) -> dict[str, range]:
    """Who gets which of so many partitions, by the ids or names of members."""
    ordered = sorted(members, key=lambda member: (_OF_THIS_LIFE.sub("", member), member))
    return {member: range(place, count, len(ordered)) for place, member in enumerate(ordered)}


class Metadata(Protocol):
    """What a client knows of the cluster."""

    def partitions_for_topic(self, topic: str, /) -> Collection[int] | None:
        """The numbers of a topic's partitions; None: it is not known."""
        ...


def common_count(known: Metadata, topics: Iterable[str]) -> int:
    """How many partitions each of some topics has; topics that are not known do not count."""
    counts = [len(known.partitions_for_topic(topic) or ()) for topic in topics]
    return min((count for count in counts if count), default=0)


class StripedAssignor(AbstractPartitionAssignor):  # type: ignore[misc]  # aiokafka is untyped
    """What one member of a group knows of its sharing; whichever member leads shares for all."""

    name = "freshet-striped"

    def __init__(self) -> None:
        self.shared: int | None = None
        """How many partitions of each topic the group has shared, by its last decision; None: that
        is not known, as where a member of before leads."""

    def assign(
        self, cluster: ClusterMetadata, members: Mapping[str, ConsumerProtocolMemberMetadata]
    ) -> dict[str, ConsumerProtocolMemberAssignment]:
        """Share the partitions; called in the member that leads.

        A member that does not read one of the topics, as it is of another version, has the same
        partitions of the others as if it did.
        """
        read_by = {member: set(metadata.subscription) for member, metadata in members.items()}
        known = [
            t for t in sorted(set().union(*read_by.values())) if cluster.partitions_for_topic(t)
        ]
        count = common_count(cluster, known)
        return {
            member: ConsumerProtocolMemberAssignment(
                _VERSION,
                [(topic, list(stripe)) for topic in known if topic in read_by[member]],
                str(count).encode(),
            )
            for member, stripe in stripes(members, count).items()
        }

    def metadata(self, topics: Iterable[str]) -> ConsumerProtocolMemberMetadata:
        """What a member says of itself: the same each time, else the group would share anew."""
        return ConsumerProtocolMemberMetadata(_VERSION, sorted(topics), b"")

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:
        """Note how many partitions there were to share. A member that comes back is told that too,
        and not that some were added while it was away."""
        said = assignment.user_data or b""
        self.shared = int(said) if said.isdigit() else None


class FormerAssignor(RangePartitionAssignor):  # type: ignore[misc]
    """What members of before know: while there is one, the group shares by range."""

    def __init__(self, ours: StripedAssignor) -> None:
        self._ours = ours

    def on_assignment(self, assignment: ConsumerProtocolMemberAssignment) -> None:  # noqa: ARG002
        """Nothing is said of how many partitions there were."""
        self._ours.shared = None
