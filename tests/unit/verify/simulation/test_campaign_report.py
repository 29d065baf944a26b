"""What a campaign reports of its seeds."""

import pytest

from services.verify.simulation import campaign
from services.verify.simulation.campaign import Verdict, judge, warm_up
from services.verify.simulation.plan import Scale

SMALL = Scale(seconds=14.0, quiet_seconds=6.0, rest_seconds=2.0)


def test_it_says_what_a_seed_takes_of_a_processor(monkeypatch):
    spent = {1: 0.3, 2: 0.5}
    verdicts = [Verdict(seed, "0", (), (), {}, seconds) for seed, seconds in spent.items()]
    monkeypatch.setattr(campaign, "judge_all", lambda *_, **__: iter(verdicts))

    report = campaign.campaign(range(1, 3), SMALL, print)

    assert report["cpu_seconds_per_seed"] == 0.4


@pytest.mark.slow(0.5)
def test_a_seed_is_timed_by_the_real_clock_whatever_its_workers_see():
    warm_up()
    assert judge(3, SMALL).cpu_seconds > 0.0
