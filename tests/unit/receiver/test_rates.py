"""Token buckets of senders: what they let through, and what they remember."""

from hypothesis import given
from hypothesis import strategies as st

from services.receiver.rates import BURST_SECONDS, Rates


@given(
    per_second=st.floats(0.5, 100.0),
    asked=st.lists(st.tuples(st.floats(0.0, 5.0), st.integers(1, 50)), max_size=60),
)
def test_no_order_of_arrival_gets_more_than_the_rate_and_a_burst(per_second, asked):
    rates, now, taken = Rates(per_second), 0.0, 0
    for gap, count in asked:
        now += gap
        if not rates.wait_for("a", count, now):
            taken += count
    burst = max(per_second * BURST_SECONDS, 1.0)
    # The last one may have been larger than what a bucket holds.
    assert taken <= now * per_second + max(burst, 50.0) + 1e-6


def test_after_the_wait_that_it_is_told_a_sender_gets_what_it_asked_for():
    rates = Rates(2.0)
    assert rates.wait_for("a", 20, 0.0) == 0.0
    wait = rates.wait_for("a", 7, 0.0)
    assert wait == 3.5
    assert rates.wait_for("a", 7, 3.5) == 0.0


def test_what_is_larger_than_a_burst_passes_once_and_is_paid_for():
    rates = Rates(1.0)
    assert rates.wait_for("a", 100, 0.0) == 0.0
    assert rates.wait_for("a", 1, 0.0) == 91.0


def test_senders_do_not_share_and_the_longest_unused_is_forgotten():
    rates = Rates(1.0, most_senders=2)
    for sender in "abab":
        assert rates.wait_for(sender, 5, 0.0) == 0.0
    assert rates.wait_for("a", 5, 0.0) > 0.0
    assert rates.wait_for("c", 5, 0.0) == 0.0
    assert rates.wait_for("b", 10, 0.0) == 0.0
