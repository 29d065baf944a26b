"""The budget as slots: evenly spaced, and none lost or gained where the rate changes."""

import numpy as np
import pytest

from services.replay.slots import Budget


def test_slots_are_exactly_one_over_r_apart() -> None:
    slots = Budget.constant(4.0).slot_times(2.0)
    assert slots.tolist() == [0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0]


@pytest.mark.parametrize("days", [1.0, 7.3, 10.0, 12.5])
def test_the_number_of_slots_is_the_whole_part_of_the_budget_spent(days: float) -> None:
    budget = Budget(((0.0, 3.3), (1.7, 0.0), (3.0, 12.7), (8.0, 0.9)))
    slots = budget.slot_times(days)
    assert slots.size == int(budget.mean_rate(days) * days + 1e-9)
    assert (np.diff(slots) > 0).all()
    assert slots[-1] <= days


@pytest.mark.parametrize(
    "steps", [(), ((1.0, 5.0),), ((0.0, 5.0), (0.0, 6.0)), ((0.0, -1.0),), ((0.0, np.inf),)]
)
def test_bad_budgets_are_refused(steps: tuple[tuple[float, float], ...]) -> None:
    with pytest.raises(ValueError, match="budget steps"):
        Budget(steps)


def test_slots_that_no_memory_holds_are_refused() -> None:
    with pytest.raises(
        ValueError, match=r"1e\+09 crawls in 100 days are more than can be replayed"
    ):
        Budget.constant(1e7).slot_times(100.0)
