"""The scheduler's part in splitting a shard, while the number of shards grows.

Two schedulers must never pick the same page. So before a shard is split, its scheduler stops to
pick, waits until the broker has all that it has asked for, and says so in the database; only then
is it split (`shared.store.splits`), and loaded anew by its scheduler, and by those of its children.

Crawlers answer where a page's host belongs after the growth. So it also waits until estimators have
applied all that named the pages that it has picked: elsewhere nobody would know them, and what was
found of them would be a dead letter. And all else that is said of pages, and the limits of hosts:
what is left on the partition is passed on, behind what is said later on the new ones, and of two
limits of a host the last one holds. Picking stops once what there was when it was asked is applied,
and so for a moment only, however far behind estimators are; where they stop just then, the shard is
picked on, and stops again once they have gone on.
Whoever wanted to split it may be gone: after a while the database takes that for given up, and the
shard goes on as it was.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import structlog
from aiokafka.errors import KafkaError

from services.scheduler.flow.bounds import bounds_of
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.state.shard import Shard
from shared.contracts.layout import Layout
from shared.contracts.topics import HOST_LIMITS, PAGE_UPDATES, Topic
from shared.runtime.settings import Settings
from shared.store.connection import connect
from shared.store.deployment import require_held, require_schema
from shared.store.layout import read_layout
from shared.store.looking import Looking
from shared.store.positions import ESTIMATOR, read_positions
from shared.store.rights import SCHEDULER
from shared.store.splits import Split, SplitState, hold, read_splits, resume, take_over

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 0.5

HELD_SECONDS: Final = 5.0
"""A shard that has not been picked for so long, and cannot be split yet, is picked on meanwhile."""

ENDS_SECONDS: Final = 5.0
"""A broker that takes longer to say where topics end is asked again at the next look."""

_IN_ORDER: Final[tuple[Topic, ...]] = (PAGE_UPDATES, HOST_LIMITS)
"""Topics that are applied as far as they go before a shard is split."""


@dataclass(slots=True)
class _Asked:
    """A shard that somebody wants to split."""

    shard: Shard
    until: dict[str, int]
    """Topic → up to which offset of the shard's partition estimators have to be."""
    held_at: float = 0.0
    """When picking stopped; monotonic seconds."""
    is_said: bool = False
    """Whether the database may know that it has."""

    def note_named(self) -> None:
        """Estimators have to know all pages that the shard knows now."""
        topic = PAGE_UPDATES.name
        self.until[topic] = max(self.until.get(topic, 0), self.shard.named_until)


class Begun(NamedTuple):
    """What shards are loaded by."""

    layout: Layout
    """How the hosts are shared out."""
    claim: str
    """The fencing token of the loading (`shared.store.splits.take_over`)."""


def begin_anew(database_url: str, shards: set[int], held: str | None = None) -> Begun:
    """Take shards over that are about to be loaded: what the scheduler before says of them, or has
    said, does not count any more.

    Args:
        database_url: libpq URL.
        shards: of this database.
        held: which it has to have (`shared.store.deployment.require_held`).

    Raises:
        StoreMismatch: it has others, or is of an older version.
        psycopg.OperationalError: the server cannot be reached.
    """
    claim = secrets.token_hex(8)
    with connect(database_url, "splits", autocommit=True) as connection:
        require_schema(connection)
        require_held(connection, held)
        take_over(connection, shards, claim)
        return Begun(read_layout(connection), claim)


class Shards(Protocol):
    """The consumer that the shards belong to."""

    @property
    def settled(self) -> bool:
        """Whether the group's last decision is known and followed."""

    @property
    def is_sure(self) -> bool:
        """Whether the shards cannot be another scheduler's."""

    def reload(self, partitions: set[int]) -> None:
        """Have shards loaded anew."""


class Pauses(Protocol):
    """What picks and sends."""

    async def hold(self, shard: Shard) -> bool:
        """Pick nothing more of a shard; whether all that was picked is with the broker."""

    async def go_on(self, shard: Shard) -> None:
        """Pick again."""


class SplitWatch:
    """Follows the growth of the number of shards."""

    def __init__(
        self,
        settings: Settings,
        thread: ShardThread,
        shards: Callable[[], Mapping[int, Shard]],
        consumer: Shards,
        pauses: Pauses,
        note: Callable[[Layout], None],
    ) -> None:
        """Make it, not connected yet.

        Args:
            settings: of the process.
            thread: that of the shards.
            shards: those of this process, number → shard; called in that thread.
            consumer: of the scheduler.
            pauses: what stops picking.
            note: told each time how the hosts are shared out.
        """
        self._settings = settings
        self._looking = Looking(settings.database_url.get_secret_value(), "splits", SCHEDULER)
        self._thread = thread
        self._shards = shards
        self._consumer = consumer
        self._pauses = pauses
        self._note = note
        self._asked: dict[int, _Asked] = {}

    async def run(self, stopping: asyncio.Event) -> None:
        """Look until `stopping` is set; a database that is away is asked again."""
        await self._looking.run(self._turn, EVERY_SECONDS, stopping)

    async def _turn(self) -> None:
        shards = await self._thread.run(lambda: dict(self._shards()))
        layout, splits = await asyncio.to_thread(self._read, shards)
        self._note(layout)
        others = self._reload_others(layout, shards)
        for number, split in splits.items():
            # Of one that was split already, and is not loaded anew yet, it is the next growth's.
            if number in shards and number not in others:
                await self._follow(shards[number], split)

    def _read(self, shards: Mapping[int, Shard]) -> tuple[Layout, dict[int, Split]]:
        connection = self._looking.connection
        layout = read_layout(connection)
        return layout, read_splits(connection, shards.keys()) if layout.is_growing else {}

    def _reload_others(self, layout: Layout, shards: Mapping[int, Shard]) -> set[int]:
        """Have shards loaded anew that have other hosts by now; which they are."""
        others = {
            number
            for number, shard in shards.items()
            if shard.layout.modulus_of(number) != layout.modulus_of(number)
        }
        if others:
            log.info("shards were split and are loaded anew", shards=sorted(others))
            self._consumer.reload(others)
        return others

    async def _follow(self, shard: Shard, split: Split) -> None:
        if split.state is SplitState.ASKED and split.is_current:
            if split.claim == shard.claim:
                await self._hold(shard)
            else:
                await self._claim_again(shard)
        elif split.state in (SplitState.ASKED, SplitState.HELD):
            if not split.is_current:
                await asyncio.to_thread(resume, self._looking.connection, shard.number)
        elif split.state is SplitState.WAITING:
            self._asked.pop(shard.number, None)
            if shard.is_held:
                log.warning("a split was given up: the shard goes on", shard=shard.number)
                await self._pauses.go_on(shard)

    async def _claim_again(self, shard: Shard) -> None:
        """Have a shard loaded anew that another scheduler has taken over since, if it is ours all
        the same: that one is gone, or the database has forgotten that we came after it."""
        shards = await self._thread.run(lambda: dict(self._shards()))
        # Where we have just loaded it ourselves there is another one in its place.
        if shards.get(shard.number) is shard and self._is_ours:
            log.warning("a shard was taken over and is loaded anew", shard=shard.number)
            self._consumer.reload({shard.number})

    async def _hold(self, shard: Shard) -> None:
        """Stop picking, and say so, once nothing stands against it; else at the next look."""
        asked = await self._first_asked(shard)
        if asked is None:
            return
        was_held = shard.is_held
        if not was_held and not await self._is_applied(asked):
            return
        is_sent = await self._pauses.hold(shard)
        if not was_held:
            asked.note_named()
            asked.held_at = time.monotonic()
        # Whether it is ours is asked last: meanwhile it may have become another's, who picks. Where
        # it becomes so from now on, the claim is another one.
        if is_sent and await self._is_applied(asked) and self._is_ours:
            asked.is_said = True
            asked.is_said = await asyncio.to_thread(
                hold, self._looking.connection, shard.number, claim=shard.claim
            )
        elif not asked.is_said and time.monotonic() - asked.held_at > HELD_SECONDS:
            log.info("a shard that cannot be split yet is picked on", shard=shard.number)
            del self._asked[shard.number]
            await self._pauses.go_on(shard)

    async def _first_asked(self, shard: Shard) -> _Asked | None:
        """How far estimators had to go when the shard was first asked for; None: the broker does
        not say so now."""
        asked = self._asked.get(shard.number)
        if asked is None or asked.shard is not shard:
            try:
                async with asyncio.timeout(ENDS_SECONDS):
                    begins, ends = await bounds_of(self._settings, _IN_ORDER, [shard.number])
            except (KafkaError, TimeoutError) as error:
                log.warning("a shard cannot be split yet", shard=shard.number, error=repr(error))
                return None
            # What nobody can read any more is waited for by nobody.
            until = {topic: end for (topic, n), end in ends.items() if end > begins[topic, n]}
            asked = self._asked[shard.number] = _Asked(shard, until)
            asked.note_named()
        return asked

    async def _is_applied(self, asked: _Asked) -> bool:
        """Whether estimators are as far as they have to be."""
        number = asked.shard.number
        applied = await asyncio.to_thread(
            read_positions, self._looking.connection, ESTIMATOR, [number]
        )
        return all(applied.get((topic, number), 0) >= end for topic, end in asked.until.items())

    @property
    def _is_ours(self) -> bool:
        return self._consumer.settled and self._consumer.is_sure
