"""The loop's benchmark counts every second that is over its budget, by the slots, exactly."""

import numpy as np

from services.bench import loop
from services.bench.real_system import Requests

STATUS = {"in_flight": 0, "page_signals": 0}


def seconds_over(slots, rate=100.0):
    slots = np.sort(slots)
    requests = Requests(slots, slots + 0.03, np.zeros(slots.size, np.int64))
    step = loop._Step(rate, 0.0, 10.0, {}, {}, STATUS, 0, None)
    return loop._answer(step, requests)["seconds_over_budget"]


def test_slots_at_the_budget_are_not_over_it():
    assert seconds_over(np.arange(0, 1000) / 100.0) == 0
    assert seconds_over(np.arange(0, 1000) / 100.0 + 0.0049) == 0


def test_a_single_crawl_too_many_is_counted():
    slots = np.append(np.arange(0, 1000) / 100.0, 4.505)

    assert seconds_over(slots) == 1


def test_many_too_many_in_one_second_are_one_second():
    slots = np.append(np.arange(0, 1000) / 100.0, np.linspace(6.1, 6.8, 60))

    assert seconds_over(slots) == 1
