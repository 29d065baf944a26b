"""A survey leaves most of the time to others."""

import pytest

from services.estimator.surveying import GivenUp, Rests


class Clock:
    def __init__(self):
        self.now = 100.0

    def rest(self, seconds):
        self.now += seconds
        return False


@pytest.mark.parametrize("share", [0.05, 0.25, 1.0])
def test_a_survey_works_for_its_share_of_the_time(share):
    clock = Clock()
    rests = Rests(share, lambda: clock.now, clock.rest)
    for seconds in (0.5, 0.0, 3.0, 20.0, 0.01):
        clock.now += seconds
        rests()
    assert rests.worked == pytest.approx(23.51)
    assert rests.worked / (clock.now - 100.0) == pytest.approx(share)


def test_a_clock_that_is_set_back_is_no_work():
    clock = Clock()
    rests = Rests(0.25, lambda: clock.now, clock.rest)
    clock.now -= 50.0
    rests()
    assert rests.worked == 0.0


def test_a_survey_that_is_not_wanted_ends_at_its_next_rest():
    rests = Rests(1e-12)
    rests.end()
    with pytest.raises(GivenUp):
        rests()
