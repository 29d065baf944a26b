"""Whether a group has shared all partitions that its topics have, also those that were added.

aiokafka does the most of it: it looks at the metadata again and again, and a member that sees that
there are more partitions joins anew. If it leads the group, the group then shares anew; of others
the broker takes no notice. But it compares with what it has decided itself. A static member that
leads, and was away for a moment, comes back without a new decision, and finds nothing that has
changed, whether partitions were added meanwhile or are later; one that begins to lead shares by
what it saw a minute ago. So each decision says how many partitions it was about, and each member
compares.

What only some of the topics have is shared by nobody. While shards grow that lasts for seconds. But
administrators can add partitions, too: whoever reads says so then, as nobody else would.
"""

import asyncio
from collections.abc import Collection
from typing import Final

import structlog
from aiokafka import AIOKafkaConsumer

from shared.runtime.aiokafka_patches import GroupMember, client_of, read_ahead
from shared.runtime.kafka import fetch_bytes
from shared.runtime.partition_counts import TopicMismatch, growth_of
from shared.runtime.settings import Settings
from shared.runtime.striped import FormerAssignor, StripedAssignor, common_count

log = structlog.get_logger(__name__)

LOOK_SECONDS: Final = 3.0
"""Partitions that are not shared at two looks are shared by nobody but us."""


class PartitionWatch:
    """Looks after the sharing of a group's partitions, as one member of it."""

    def __init__(self, settings: Settings, topics: Collection[str]) -> None:
        """Make it, before its consumer.

        Args:
            settings: of the process.
            topics: on the broker; partition p of each goes to the same member.
        """
        self.assignor = StripedAssignor()
        """For the consumer's options."""
        self._settings = settings
        self._topics = topics
        self._consumer: AIOKafkaConsumer | None = None
        self._member: GroupMember | None = None
        self._lacked = False
        self.trouble: str | None = None
        """Why partitions are read by nobody, though there are records on them; None: all are read,
        or will be when a growth is over."""

    def watch(self, consumer: AIOKafkaConsumer) -> None:
        """Watch a started consumer that has not joined its group yet."""
        self._consumer, self._member = consumer, GroupMember(consumer)
        self._member.offer(FormerAssignor(self.assignor))

    @property
    def there(self) -> int:
        """How many partitions each topic has, as far as the client knows; 0: it does not."""
        if self._consumer is None:
            return 0
        return common_count(self._consumer, self._topics)

    def shared_anew(self) -> None:
        """The group has decided: if there are more partitions now, less is read ahead of each."""
        partitions = max(self.there, self.assignor.shared or 0)
        if partitions > self._settings.partitions and self._consumer is not None:
            read_ahead(self._consumer, fetch_bytes(self._settings, len(self._topics), partitions))

    def look_again(self) -> None:
        """Ask the broker soon which partitions there are."""
        if self._consumer is not None:
            client_of(self._consumer).force_metadata_update()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Have the partitions shared anew if some were left out by now and at the last look."""
        self._note_odd_ones()
        there, shared = self.there, self.assignor.shared
        lacks = shared is not None and there > shared
        if lacks and self._lacked and self._member is not None:
            log.info("partitions were added that nobody reads", shared=shared, there=there)
            self._member.rejoin()
        self._lacked = lacks and not self._lacked

    def _note_odd_ones(self) -> None:
        """See whether the topics have numbers of partitions that no growth explains."""
        if self._consumer is None:
            return
        known = self._consumer.partitions_for_topic
        counts = {name: len(known(name) or ()) for name in self._topics}
        found = {name: count for name, count in counts.items() if count}
        trouble = None
        try:
            growth_of(found, self._settings.partitions)
        except TopicMismatch as error:
            trouble = f"partitions behind the first {self.there} are read by nobody: {error}"
        if trouble is not None and trouble != self.trouble:
            log.error("partitions are read by nobody", reason=trouble, partitions=found)
        self.trouble = trouble
