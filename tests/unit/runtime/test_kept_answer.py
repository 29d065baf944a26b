"""However many ask for an answer, a tenth of the time goes into making it."""

import asyncio

import pytest

from shared.runtime.kept_answer import KeptAnswer


class Making:
    """Answers that take so many seconds to make, each another one."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.time = 0.0
        self.made = 0
        self.kept = KeptAnswer(self._make, lambda: self.time)

    async def _make(self):
        await asyncio.sleep(0)  # others ask meanwhile
        self.time += self.seconds
        self.made += 1
        return str(self.made).encode()

    async def ask_for(self, seconds):
        until = self.time + seconds
        while self.time < until:
            assert await self.kept.body() == str(self.made).encode()
            self.time += 0.001


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.1])
async def test_a_tenth_of_the_time_goes_into_answers_and_each_is_soon_another(seconds):
    making = Making(seconds)
    await making.ask_for(20.0)
    assert making.made * seconds == pytest.approx(0.1 * making.time, rel=0.1)


async def test_one_that_took_long_as_the_process_stood_still_is_not_kept_for_long():
    making = Making(30.0)
    await making.kept.body()
    making.seconds = 0.0
    await making.ask_for(1.1)
    assert making.made > 1


async def test_those_who_ask_meanwhile_wait_for_the_answer_that_is_made():
    making = Making(0.01)
    assert await asyncio.gather(*(making.kept.body() for _ in range(100))) == [b"1"] * 100


async def test_what_could_not_be_made_is_made_for_who_asks_next():
    answers = iter([RuntimeError("not now"), b"made"])

    async def make():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    kept = KeptAnswer(make)
    with pytest.raises(RuntimeError):
        await kept.body()
    assert await kept.body() == b"made"
