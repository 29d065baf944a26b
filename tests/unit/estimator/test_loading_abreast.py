"""Shards are loaded some at a time: while one is unpacked, the server is asked for another."""

import asyncio

import pytest

from services.estimator.taking import LOADED_AT_ONCE, load_some_at_once


class Loads:
    """Each waits until it is let go, in any order."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.under_way: dict[int, asyncio.Future[None]] = {}

    async def load(self, shard: int) -> None:
        self.begun.append(shard)
        self.under_way[shard] = asyncio.get_running_loop().create_future()
        try:
            await self.under_way[shard]
        finally:
            del self.under_way[shard]


async def others_have_their_turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_shard_is_begun_as_soon_as_another_is_there():
    loads = Loads()
    loading = asyncio.create_task(load_some_at_once(loads.load, range(10, 10 + LOADED_AT_ONCE + 2)))
    await others_have_their_turn()
    assert loads.begun == list(range(10, 10 + LOADED_AT_ONCE))
    loads.under_way[10 + LOADED_AT_ONCE - 1].set_result(None)
    await others_have_their_turn()
    assert loads.begun == list(range(10, 10 + LOADED_AT_ONCE + 1))
    while not loading.done():
        assert len(loads.under_way) <= LOADED_AT_ONCE
        next(iter(loads.under_way.values())).set_result(None)
        await others_have_their_turn()
    assert loads.begun == list(range(10, 10 + LOADED_AT_ONCE + 2))


async def test_after_one_has_failed_no_other_begins_and_none_is_left_under_way():
    loads = Loads()
    loading = asyncio.create_task(load_some_at_once(loads.load, range(9)))
    await others_have_their_turn()
    loads.under_way[0].set_exception(OSError("the server is away"))
    await others_have_their_turn()
    assert not loading.done(), "whoever connects anew must not do so beside a load"
    loads.under_way[1].set_result(None)
    with pytest.raises(OSError, match="away"):
        await loading
    assert loads.begun == [0, 1]


async def test_nothing_is_loaded_where_there_is_nothing():
    await load_some_at_once(Loads().load, [])
