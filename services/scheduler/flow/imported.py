"""Pages that come by import while the scheduler runs: found in the database, and added.

An import writes straight into the database; no topic tells of it. So every other second the
database is asked for imports that the shards have not seen (`shared.store.imports_log`). Their
pages are read some at a time and applied as the page updates that they amount to: what a topic
said of a page later stands, and one that is applied twice changes nothing.

Of a page about which a topic has said something later, maybe not all that the import says, an
estimator may not know yet. It is read again until the database knows as much as the shard does.
So are pages of which an update was left out, as its class was one too many here: an estimator that
was started since may have found that others have no page any more.

What was said of a page before it came here is made good: signals from after the import are kept for
a while, and what was learned of a page that was removed and is there again is in the database.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np
import structlog
from numpy.typing import NDArray

from services.scheduler import metrics
from services.scheduler.flow.shard_thread import ShardThread
from services.scheduler.state.shard import Shard
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.runtime.settings import Settings
from shared.store.imports_log import (
    PAGES_AT_ONCE,
    LearnedPages,
    PageImport,
    read_imported_pages,
    read_imports,
    read_learned,
)
from shared.store.looking import Looking
from shared.store.page_lookup import UNKNOWN
from shared.store.rights import SCHEDULER

log = structlog.get_logger(__name__)

EVERY_SECONDS: Final = 2.0

PAGES_A_TURN: Final = 100
"""So many are applied before others get their turn in the shards' thread: some milliseconds."""

MOST_AHEAD: Final = 10_000
"""So many pages of a shard are read again at most."""


class ImportWatch:
    """Looks for imports of the shards of this process."""

    def __init__(
        self, settings: Settings, thread: ShardThread, shards: Callable[[], Mapping[int, Shard]]
    ) -> None:
        """Make it, not connected yet.

        Args:
            settings: of the process.
            thread: that of the shards.
            shards: those of this process, number → shard; called in that thread.
        """
        self._looking = Looking(settings.database_url.get_secret_value(), "imports", SCHEDULER)
        self._thread = thread
        self._shards = shards
        self._ahead: dict[int, tuple[Shard, list[int]]] = {}
        """Shard → pages of which it knows what is newer than what the database knew."""

    async def run(self, stopping: asyncio.Event) -> None:
        """Look until `stopping` is set; a database that is away is asked again.

        Raises:
            ImportsForgotten: the database was away for so long, or has lost imports, so that the
                shards must be loaded anew.
        """

        async def take_all() -> None:
            while not stopping.is_set() and await self._take_next(stopping):
                pass
            await self._look_again(stopping)

        await self._looking.run(take_all, EVERY_SECONDS, stopping)

    async def _take_next(self, stopping: asyncio.Event) -> bool:
        """Take the next import of each shard; whether there was one."""
        shards = await self._thread.run(lambda: dict(self._shards()))
        seen = {number: shard.imported for number, shard in shards.items()}
        if not seen:
            return False
        found = await asyncio.to_thread(lambda: read_imports(self._looking.connection, seen))
        for one in found:
            await self._take(shards[one.shard], one, stopping)
        return bool(found)

    async def _take(self, shard: Shard, one: PageImport, stopping: asyncio.Event) -> None:
        began = time.monotonic()
        for begin in range(0, one.page_ids.size, PAGES_AT_ONCE):
            ids = one.page_ids[begin : begin + PAGES_AT_ONCE]
            pages = await asyncio.to_thread(self._read_pages, one.shard, ids)
            if not await self._apply_all(shard, pages, stopping):
                return
        # Of a shard that has gone to another scheduler meanwhile this is nobody's any more.
        shard.imported = one.last
        metrics.IMPORTED.inc(one.page_ids.size)
        log.info(
            "imported pages taken",
            shard=one.shard,
            pages=one.page_ids.size,
            seconds=round(time.monotonic() - began, 2),
        )

    def _read_pages(self, shard: int, page_ids: NDArray[np.int64]) -> list[PageUpdate]:
        return read_imported_pages(self._looking.connection, shard, page_ids)

    async def _look_again(self, stopping: asyncio.Event) -> None:
        """Take the pages of which the database knows by now what their shards know."""
        shards = await self._thread.run(lambda: dict(self._shards())) if self._ahead else {}
        for number, (shard, ids) in list(self._ahead.items()):
            pages: list[PageUpdate] = []
            if shards.get(number) is shard:
                pages = await asyncio.to_thread(self._read_pages, number, np.array(ids, np.int64))
            del self._ahead[number]
            await self._apply_all(shard, pages, stopping)
        await self._take_left_out(stopping)

    async def _take_left_out(self, stopping: asyncio.Event) -> None:
        """Take what was left out for its class, as far as the database has it."""
        for shard, ids in await self._thread.run(self._left_out):
            pages = await asyncio.to_thread(self._read_pages, shard.number, np.array(ids, np.int64))
            if await self._apply_all(shard, pages, stopping):
                times = {identify(page.url).page_id: page.updated_at or 0.0 for page in pages}
                await self._thread.run(shard.classes.have_stored, times)

    def _left_out(self) -> list[tuple[Shard, list[int]]]:
        found = [(shard, shard.classes.take_left_out()) for shard in self._shards().values()]
        return [(shard, ids) for shard, ids in found if ids]

    async def _apply_all(
        self, shard: Shard, pages: list[PageUpdate], stopping: asyncio.Event
    ) -> bool:
        """Apply pages, some at a time; whether all were, as the worker does not stop."""
        came: dict[int, float] = {}
        for first in range(0, len(pages), PAGES_A_TURN):
            if stopping.is_set():
                return False
            part = pages[first : first + PAGES_A_TURN]
            applied = await self._thread.run(_apply, shard, part)
            came |= applied.came
            if applied.newer:
                _, before = self._ahead.get(shard.number, (shard, []))
                self._ahead[shard.number] = shard, [*before, *applied.newer][-MOST_AHEAD:]
        if came:
            # Read now that nothing that is announced passes them by any more.
            page_ids = np.fromiter(came, np.int64)
            learned = await asyncio.to_thread(self._read_learned, shard.number, page_ids)
            await self._thread.run(_make_good, shard, learned, came)
        return True

    def _read_learned(self, shard: int, page_ids: NDArray[np.int64]) -> LearnedPages:
        return read_learned(self._looking.connection, shard, page_ids)


class _Applied(NamedTuple):
    """What updates came to, page by page."""

    came: dict[int, float]
    """Pages that were not there, and are: by when they were said to be, Unix seconds."""
    newer: list[int]
    """Pages of the shard about which it knows something newer."""


def _apply(shard: Shard, pages: list[PageUpdate]) -> _Applied:
    """Apply updates."""
    applied = _Applied({}, [])
    for page in pages:
        identity, time = identify(page.url), page.updated_at or 0.0
        was_there = shard.row_of(identity.page_id) != UNKNOWN
        is_taken = shard.upsert(identity, page, time, is_stored=True)
        if is_taken and not was_there:
            applied.came[identity.page_id] = time
        elif not is_taken and was_there:
            applied.newer.append(identity.page_id)
    return applied


def _make_good(shard: Shard, learned: LearnedPages, came: Mapping[int, float]) -> None:
    """What was said of pages before they came: what was learned of them before they were removed,
    which nobody announces, and signals from when they were in the database already."""
    shard.parameters(*learned)
    page_ids, observed_at, sources = shard.absent.signals_of(came)
    if page_ids.size:
        shard.signals(page_ids, observed_at, sources)
