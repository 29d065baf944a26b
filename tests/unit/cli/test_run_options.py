"""What `freshet run` makes of its options, defaults filled in."""

from pathlib import Path
from typing import Any

import pytest

from services.cli.commands.run import make_options
from services.cli.errors import UserError
from services.run.options import DEFAULT_PAGES

GIVEN: dict[str, Any] = {
    "world": "generated",
    "pages_file": None,
    "events_file": None,
    "page_count": None,
    "days": None,
    "seconds": None,
    "speed": None,
    "crawls_per_day": None,
    "crawls_per_second": None,
    "steps": (),
    "policy": None,
    "broker": "local",
    "partitions": None,
    "schedulers": 1,
    "seed": 0,
    "report": None,
    "data_dir": Path(".freshet"),
    "no_view": False,
    "as_json": False,
}


def test_without_arguments_a_lively_world_runs_until_it_is_stopped() -> None:
    options = make_options(**GIVEN)

    assert options.world == "generated"
    assert options.pages == DEFAULT_PAGES
    assert options.days is None
    per_second_of_the_wall = options.budget[0].crawls_per_second * 86_400 * options.speed
    assert 100 < per_second_of_the_wall < 2_000


def test_a_trace_runs_a_day_per_second() -> None:
    files = {"pages_file": Path("p.csv"), "events_file": Path("e.csv")}
    options = make_options(**GIVEN | files | {"crawls_per_day": 200.0, "days": 60.0})

    assert (options.world, options.speed, options.days) == ("trace", 1.0, 60.0)
    assert options.budget[0].crawls_per_second == pytest.approx(200 / 86_400)


def test_seconds_of_the_wall_become_days() -> None:
    assert make_options(**GIVEN | {"seconds": 8.0, "speed": 0.5}).days == 4.0


def test_steps_are_in_the_unit_of_the_budget_and_sorted() -> None:
    per_day = make_options(
        **GIVEN | {"crawls_per_day": 100.0, "steps": ((5.0, 300.0), (2.0, 200.0))}
    )
    per_second = make_options(**GIVEN | {"crawls_per_second": 1.0, "steps": ((2.0, 4.0),)})

    assert [step.day for step in per_day.budget] == [0, 2, 5]
    assert per_day.budget[2].crawls_per_second == pytest.approx(300 / 86_400)
    assert [step.crawls_per_second for step in per_second.budget] == [1.0, 4.0]


def test_the_system_alone_keeps_the_budget_that_stands() -> None:
    assert make_options(**GIVEN | {"world": "none"}).budget == ()


@pytest.mark.parametrize(
    "wrong",
    [
        {"pages_file": Path("p.csv")},
        {"pages_file": Path("p.csv"), "events_file": Path("e.csv")},
        {"pages_file": Path("p"), "events_file": Path("e"), "world": "none", "crawls_per_day": 1.0},
        {"days": 1.0, "seconds": 1.0},
        {"crawls_per_day": 1.0, "crawls_per_second": 1.0},
        {"world": "none", "steps": ((1.0, 2.0),)},
        {
            "pages_file": Path("p"),
            "events_file": Path("e"),
            "crawls_per_day": 1.0,
            "page_count": 5,
        },
    ],
)
def test_contradictions_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UserError):
        make_options(**GIVEN | wrong)
