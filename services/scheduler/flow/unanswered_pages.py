"""What nobody answers is written to the database now and then, for who loads the shards next.

Picking does not wait for it: where the database is away, or takes no writes, it is written later.
Who loads a shard also reads the requests whose deadlines have passed within the last
`recovery.UNWRITTEN_SECONDS`, so of one that ends nothing is missed that was not written yet.

What the broker does not have yet, as it is away, nobody could answer: it is not written before the
broker has it, as it may never be sent.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.state.shard import Shard
from services.scheduler.state.unanswered import MOST_AT_ONCE
from shared.runtime.clock import Clock
from shared.runtime.settings import Settings
from shared.store.columns import UnansweredNews
from shared.store.looking import Looking
from shared.store.rights import SCHEDULER
from shared.store.unanswered import write_unanswered

EVERY_SECONDS: Final = 5.0

_MOMENT: Final = 1e-3


class UnansweredWriter:
    """Writes the unanswered pages of the shards of this process."""

    def __init__(
        self,
        settings: Settings,
        thread: ShardThread,
        shards: Callable[[], Mapping[int, Shard]],
        clock: Clock,
        unsent_since: Callable[[], float],
    ) -> None:
        """Make it, not connected yet.

        Args:
            settings: of the process.
            thread: that of the shards.
            shards: those of this process, number → shard; called in that thread.
            clock: by which requests have their deadlines.
            unsent_since: time of the first request that the broker may not have, of the clock.
        """
        self._looking = Looking(settings.database_url.get_secret_value(), "unanswered", SCHEDULER)
        self._thread = thread
        self._shards = shards
        self._clock = clock
        self._timeout = clock.span(settings.request_timeout_seconds)
        self._unsent_since = unsent_since

    async def run(self, stopping: asyncio.Event) -> None:
        """Write until `stopping` is set; a database that is away is asked again."""

        async def write_all() -> None:
            while await self._write_some() and not stopping.is_set():
                pass

        await self._looking.run(write_all, EVERY_SECONDS, stopping)

    async def _write_some(self) -> bool:
        """Write some of what is new; whether there may be more."""
        # Those from then on have their deadlines so much later.
        until = min(self._clock.now(), self._unsent_since() + self._timeout - _MOMENT)
        news = await self._thread.run(self._news, until)
        if not news:
            return False
        await asyncio.to_thread(self._write, list(news.values()))
        # What was not written, as the shard is another's by now, is nobody's any more.
        await self._thread.run(_note_told, news)
        return sum(map(_size_of, news.values())) >= MOST_AT_ONCE

    def _news(self, until: float) -> dict[Shard, UnansweredNews]:
        """What is new of the requests whose deadlines were until then."""
        found: dict[Shard, UnansweredNews] = {}
        left = MOST_AT_ONCE
        for shard in self._shards().values():
            # What is not read yet may be the answer; and what is held may move just now.
            if left > 0 and shard.is_caught_up and not shard.is_held:
                news = shard.unanswered.news(until)
                if news is not None:
                    found[shard] = news
                    left -= _size_of(news)
        return found

    def _write(self, news: list[UnansweredNews]) -> None:
        connection = self._looking.connection
        with connection.transaction():
            write_unanswered(connection, news)


def _size_of(news: UnansweredNews) -> int:
    return news.pages.page_ids.size + news.answered.size


def _note_told(shards: Iterable[Shard]) -> None:
    for shard in shards:
        shard.unanswered.told()
