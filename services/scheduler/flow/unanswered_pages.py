"""What nobody answers is written to the database now and then, for who loads the shards next.

Picking does not wait for it: where the database is away, or takes no writes, it is written later.
Who loads a shard also reads the requests whose deadlines have passed within the last
`recovery.UNWRITTEN_SECONDS`, so of one that ends nothing is missed that was not written yet.
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
from shared.store.unanswered import write_unanswered

EVERY_SECONDS: Final = 5.0


class UnansweredWriter:
    """Writes the unanswered pages of the shards of this process."""

    def __init__(
        self,
        settings: Settings,
        thread: ShardThread,
        shards: Callable[[], Mapping[int, Shard]],
        clock: Clock,
    ) -> None:
        """Make it, not connected yet.

        Args:
            settings: of the process.
            thread: that of the shards.
            shards: those of this process, number → shard; called in that thread.
            clock: by which requests have their deadlines.
        """
        self._looking = Looking(settings.database_url.get_secret_value(), "unanswered")
        self._thread = thread
        self._shards = shards
        self._clock = clock

    async def run(self, stopping: asyncio.Event) -> None:
        """Write until `stopping` is set; a database that is away is asked again."""

        async def write_all() -> None:
            while await self._write_some() and not stopping.is_set():
                pass

        await self._looking.run(write_all, EVERY_SECONDS, stopping)

    async def _write_some(self) -> bool:
        """Write some of what is new; whether there may be more."""
        news = await self._thread.run(self._news)
        if not news:
            return False
        await asyncio.to_thread(self._write, list(news.values()))
        # What was not written, as the shard is another's by now, is nobody's any more.
        await self._thread.run(_note_told, news)
        return sum(map(_size_of, news.values())) >= MOST_AT_ONCE

    def _news(self) -> dict[Shard, UnansweredNews]:
        found: dict[Shard, UnansweredNews] = {}
        now, left = self._clock.now(), MOST_AT_ONCE
        for shard in self._shards().values():
            # What is not read yet may be the answer; and what is held may move just now.
            if left > 0 and shard.is_caught_up and not shard.is_held:
                news = shard.unanswered.news(now)
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
