"""A crawler that is told to stop stops, whatever its broker does."""

import asyncio

from scrapy_freshet.ending import for_at_most


async def test_what_hears_no_cancellation_is_left():
    heard = asyncio.Event()

    async def deaf():
        while not heard.is_set():
            try:
                await asyncio.sleep(3600.0)
            except asyncio.CancelledError:
                heard.set()
                await asyncio.sleep(0.05)

    await for_at_most(0.01, deaf())

    assert not heard.is_set(), "nobody waited for it to hear"
    await asyncio.wait_for(heard.wait(), 5.0)
    await asyncio.sleep(0.1)


async def test_what_fails_is_said_and_stops_nothing(caplog):
    done = []

    async def failing():
        raise ConnectionError("the broker is gone")

    async def working():
        done.append(True)

    await for_at_most(5.0, failing(), working())

    assert done == [True]
    assert "the broker is gone" in caplog.text
