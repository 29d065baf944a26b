"""How an estimator takes a shard: from whoever had it, and out of the database."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final

from services.estimator.persistence import Store
from services.estimator.shard import Shard
from shared.runtime.batches import Positions
from shared.runtime.settings import Settings
from shared.store.layout import fetch_layout
from shared.store.positions import require_remembered
from shared.store.snapshot import LearningSnapshot, load_for_learning

LOADED_AT_ONCE: Final = 2
"""While one shard is unpacked, the server gathers another, or waits for its disk."""


async def load_some_at_once(load: Callable[[int], Awaitable[None]], shards: Iterable[int]) -> None:
    """Load shards in their order, some at once.

    After one has failed no other begins, and at the end none is under way.

    Args:
        load: loads one.
        shards: which.

    Raises:
        Exception: the first that failed.
    """
    waiting = deque(shards)

    async def in_turn() -> None:
        try:
            while waiting:
                await load(waiting.popleft())
        except BaseException:
            waiting.clear()
            raise

    turns = (in_turn() for _ in range(min(LOADED_AT_ONCE, len(waiting))))
    for failed in await asyncio.gather(*turns, return_exceptions=True):
        if failed is not None:
            raise failed


def taken_over(
    store: Store,
    settings: Settings,
    number: int,
    among: Collection[int],
    committed: Positions,
    *,
    hurried: bool,
) -> tuple[Shard, LearningSnapshot]:
    """Take a shard, and load it as it is from then on.

    Args:
        store: connected.
        settings: of the database.
        number: of the shard.
        among: the shards whose pages count together with its own.
        committed: how far shards are known to be applied and durable.
        hurried: not to wait long where somebody holds it locked.

    Raises:
        Forgotten: the database has lost what was committed of it.
        psycopg.errors.LockNotAvailable: somebody holds it locked.
        psycopg.OperationalError: the server went away.
    """
    # Whoever read it before can commit nothing more; what it did commit is read here.
    epoch = store.own(number, hurried=hurried)
    url = settings.database_url.get_secret_value()
    snapshot = load_for_learning(url, number, settings.estimator_resident_pages, among)
    ours = {place: offset for place, offset in committed.items() if place[1] == number}
    require_remembered(ours, snapshot.positions)
    shard = Shard.load(snapshot, store)
    shard.epoch = epoch
    return shard, snapshot


def without_hosts(
    store: Store, settings: Settings, shards: Collection[int]
) -> tuple[set[int], Positions]:
    """Which of some shards have no hosts yet, as a growth has not come to them; and how far they
    are applied.

    Args:
        store: connected.
        settings: of the database.
        shards: which.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    layout = fetch_layout(settings.database_url.get_secret_value(), "estimator")
    empty = {number for number in shards if not layout.modulus_of(number)}
    return empty, store.positions(empty)
