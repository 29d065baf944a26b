"""New seeds each day: every promise holds in all of them, or the seed is named."""

import datetime as dt
import os
import sys

import pytest

from services.verify.simulation.campaign import judge, story_of, warm_up
from services.verify.simulation.plan import Scale

FIRST = "FRESHET_SIMULATION_SEED"
COUNT = "FRESHET_SIMULATION_SEEDS"

USUAL_COUNT = 12

NOT_PROMISED = {"starved"}
"""A shard that has just been loaded may be left with few slots for a while."""


def seeds():
    """Another range each day, unless one is asked for."""
    today = dt.datetime.now(dt.UTC).date().toordinal()
    first = int(os.environ.get(FIRST, today * 1000))
    return range(first, first + int(os.environ.get(COUNT, USUAL_COUNT)))


@pytest.mark.timeout(1800)
@pytest.mark.slow(20)
def test_every_promise_holds(monkeypatch, capsys):
    chosen = seeds()
    for name in (FIRST, COUNT):
        monkeypatch.delenv(name, raising=False)
    with capsys.disabled():
        sys.stdout.write(
            f"\nsimulated seeds {chosen.start} to {chosen.stop - 1} ({FIRST}={chosen.start})\n"
        )
    warm_up()
    for seed in chosen:
        broken = set(judge(seed, Scale()).broken) - NOT_PROMISED
        assert not broken, "\n".join(story_of(seed, Scale()))
