"""What the estimator compiles before it says that it is there."""

from services.estimator.compilation import warm_up


def test_the_warm_up_goes_through_a_fit():
    assert warm_up() == 1
