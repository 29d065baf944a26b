"""A stream's items are answered as they are done, so many at once, and all that were read."""

import asyncio

import pytest

from services.frontier.streams import Stopping, answered


async def numbers(many):
    for number in range(many):
        yield number


async def test_each_item_is_answered_once():
    async def answer(number):
        await asyncio.sleep(0)
        return -number

    got = [number async for number in answered(numbers(100), answer, 7, asyncio.Event())]
    assert sorted(got) == list(range(-99, 1))


async def test_no_more_items_are_read_than_may_wait():
    held, begun = asyncio.Event(), []

    async def answer(number):
        begun.append(number)
        await held.wait()
        return number

    async def read():
        return [number async for number in answered(numbers(9), answer, 3, asyncio.Event())]

    reading = asyncio.create_task(read())
    for _ in range(20):
        await asyncio.sleep(0)
    assert begun == [0, 1, 2]
    held.set()
    assert sorted(await reading) == list(range(9))


async def test_a_stop_answers_what_was_read_and_reads_nothing_more():
    stopping = asyncio.Event()

    async def items():
        yield 1
        stopping.set()
        await asyncio.Event().wait()

    async def answer(number):
        await stopping.wait()
        return number

    answers = answered(items(), answer, 3, stopping)
    assert await anext(answers) == 1
    with pytest.raises(Stopping):
        await anext(answers)


async def test_a_client_that_breaks_off_ends_its_stream():
    async def items():
        yield 1
        raise ConnectionResetError

    async def answer(number):
        return number

    with pytest.raises(ConnectionResetError):
        [number async for number in answered(items(), answer, 3, asyncio.Event())]
