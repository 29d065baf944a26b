"""Plans under which nobody could be judged are refused before anything starts."""

import re

import pytest
from click.testing import CliRunner

from services.cli.main import main
from services.verify.plan import RATES, PlanRefused, VerifyPlan


def test_the_plans_of_both_topologies_can_be_judged():
    for topology in RATES:
        assert VerifyPlan(300.0, topology=topology).pages == 3000


@pytest.mark.parametrize(
    ("asked", "option"), [({"rate": 60.0}, "--rate"), ({"pages": 9000}, "--pages")]
)
def test_a_budget_that_is_too_small_for_the_bound_is_refused(asked, option):
    with pytest.raises(PlanRefused, match=option):
        VerifyPlan(300.0, **asked)


def test_what_is_told_instead_is_taken():
    with pytest.raises(PlanRefused) as refused:
        VerifyPlan(300.0, rate=60.0)
    rate, pages = re.findall(r"--(?:rate|pages) (\d+)", str(refused.value))

    assert VerifyPlan(300.0, rate=float(rate)).rate == float(rate)
    assert VerifyPlan(300.0, rate=60.0, pages=int(pages)).pages == int(pages)
    with pytest.raises(PlanRefused):
        VerifyPlan(300.0, rate=float(rate) - 1.0)
    with pytest.raises(PlanRefused):
        VerifyPlan(300.0, rate=60.0, pages=int(pages) + 1)


def test_the_command_says_which_option_to_change():
    refused = CliRunner().invoke(main, ["verify", "--minutes", "0.1", "--pages", "9000"])

    assert refused.exit_code == 2
    assert "give --rate" in refused.output
