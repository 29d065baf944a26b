"""What is cancelled ends, whatever it does with the cancellation."""

import asyncio

from shared.runtime.stopping import end


async def test_who_asks_again_and_again_ends_though_an_answer_comes_with_the_cancellation():
    loop, cancelled = asyncio.get_running_loop(), 0

    async def asking():
        nonlocal cancelled
        while True:
            answer = loop.create_future()
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                cancelled += 1
                if cancelled > 1:
                    raise
                answer.set_result(None)  # as wait_for does, which then returns it
                await answer

    async def failing():
        raise ValueError

    tasks = [asyncio.ensure_future(asking()), asyncio.ensure_future(failing())]
    await asyncio.sleep(0.02)
    await end(*tasks)

    assert cancelled == 2
    assert all(task.done() for task in tasks)
