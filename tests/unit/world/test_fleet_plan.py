"""Plan files: what is written is read, and what is wrong is named."""

from pathlib import Path

import pytest

from services.world.plan import BudgetStep, WorldPlan, read_plan, write_plan


def test_a_plan_comes_back(tmp_path: Path) -> None:
    plan = WorldPlan(
        kind="generated",
        budget=[BudgetStep(0, 0.5), BudgetStep(3, 1.0)],
        status_file="s.json",
        result_file="r.json",
        pages=100,
    )
    write_plan(plan, tmp_path / "world.json")

    assert read_plan(tmp_path / "world.json") == plan


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "world.json"),
        ('{"kind": "real"}', "kind"),
        ('{"kind":"trace","budget":[],"status_file":"s","result_file":"r"}', "budget"),
        ('{"kind":"trace","budjet":[]}', "budjet"),
    ],
)
def test_a_wrong_plan_is_named(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "world.json"
    file.write_text(text)

    with pytest.raises(ValueError, match=told):
        read_plan(file)
