"""However many ask for the state, a tenth of the time goes into making it."""

import pytest

from services.coordinator.kept_answer import KeptAnswer


class Making:
    """Answers that take so many seconds to make, each another one."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.time = 0.0
        self.made = 0
        self.kept = KeptAnswer(self._make, lambda: self.time)

    def _make(self):
        self.time += self.seconds
        self.made += 1
        return str(self.made).encode()

    def ask_for(self, seconds):
        until = self.time + seconds
        while self.time < until:
            assert self.kept.body() == str(self.made).encode()
            self.time += 0.001


@pytest.mark.parametrize("seconds", [0.01, 0.05, 0.1])
def test_a_tenth_of_the_time_goes_into_answers_and_each_is_soon_another(seconds):
    making = Making(seconds)
    making.ask_for(20.0)
    assert making.made * seconds == pytest.approx(0.1 * making.time, rel=0.1)


def test_one_that_took_long_as_the_process_stood_still_is_not_kept_for_long():
    making = Making(30.0)
    making.kept.body()
    making.seconds = 0.0
    making.ask_for(1.1)
    assert making.made > 1
