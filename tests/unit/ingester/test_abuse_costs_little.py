"""A hostile ping producer against ingester, estimator and scheduler, in small.

The real measurement is `freshet bench abuse`; so few pages leave a per cent to chance.
"""

import pytest

from services.bench.abuse import run


@pytest.mark.slow(1)
@pytest.mark.long
def test_an_attack_costs_other_pages_little_and_draws_hardly_any_crawls():
    (row,) = run(pages=160, days=20.0, begin=8.0, seed=1, attack="made-up-sources")
    assert row["signals"] > 2_000
    assert 0 < row["accepted"] < row["signals"] / 4
    assert row["freshness_without"] > 0.8
    assert row["freshness_lost"] < 0.02
    assert row["crawls_of_attacked"] <= 1.5 * row["crawls_without"]


@pytest.mark.long
def test_without_names_the_same_attacker_is_heard_much_more_and_a_seed_repeats_itself():
    options = {"pages": 40, "days": 4.0, "begin": 2.0, "seed": 3, "attack": "flood"}
    first, again = run(**options), run(**options)
    assert first == again
    (unnamed,) = run(**options, named=False)
    assert unnamed["accepted"] > first[0]["accepted"]
