"""The seeds of a run: every promise holds in all of them, or the seed's story is told."""

import pytest
from quarters import broken_promise


@pytest.mark.timeout(1800)
@pytest.mark.slow(6)
def test_every_promise_holds(simulated_seeds):
    story = broken_promise(simulated_seeds, 3)
    assert story is None, story
