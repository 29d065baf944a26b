"""`freshet status`: whether maximum ages can be kept."""

import math

import pytest

from services.cli.max_ages import bounds_of, judged, max_age_lines

DAY = 86_400.0


def test_pages_without_a_bound_of_their_own_have_the_default():
    pages = {1.0: 10, math.inf: 5}
    assert bounds_of(pages, None) == {1.0: 10}
    assert bounds_of(pages, 1.0) == {1.0: 15}
    assert bounds_of(pages, 30.0) == {1.0: 10, 30.0: 5}


def test_a_bandwidth_that_suffices_keeps_them():
    found = judged({1.0: 86_400, 10.0: 86_400}, 1.1, 300.0)
    assert found["crawls_per_second"] == pytest.approx(1.1)
    assert judged({1.0: 86_400, 10.0: 86_400}, 1.11, 300.0)["can_be_kept"]
    assert not judged({1.0: 86_400, 10.0: 86_400}, 1.09, 300.0)["can_be_kept"]
    assert "can be kept" in max_age_lines(judged({1.0: 86_400}, 2.0, 300.0))[0]


def test_where_slots_are_kept_for_crawls_by_value_the_rest_has_to_suffice():
    pages = {1.0: 86_400}
    assert max_age_lines(judged(pages, 2.5, 300.0, 0.5)) == [
        "max ages   86,400 pages ask for 1 crawls/s: they can be kept"
    ]
    assert max_age_lines(judged(pages, 1.5, 300.0, 0.5)) == [
        "max ages   86,400 pages ask for 1 crawls/s: they can be kept if enough of 0.5 of the "
        "slots, which are kept for crawls by value, come to such pages"
    ]
    assert "cannot be kept" in max_age_lines(judged(pages, 0.9, 300.0, 0.5))[0]


def test_where_it_does_not_all_become_late_alike():
    pages = {1.0: 86_400, 10.0: 864_000}
    found = judged(pages, 1.0, 300.0)
    late = found["late_days"] * DAY
    assert sum(n / (days * DAY + late) for days, n in pages.items()) == pytest.approx(1.0)
    shown = max_age_lines(found)
    assert "2 crawls/s at least: at this bandwidth they cannot be kept" in shown[0]
    assert [line.split(" days: ")[0].strip() for line in shown[1:]] == ["1", "10"]
    assert judged(pages, 0.0, 300.0)["late_days"] is None
    assert not judged(pages, 0.0, 300.0)["can_be_kept"]


def test_a_bound_below_the_least_interval_is_never_kept():
    found = judged({100.0 / DAY: 300}, 10.0, 300.0)
    assert (found["crawls_per_second"], found["too_short"]) == (1.0, 300)
    assert "never kept" in max_age_lines(found)[-1]


def test_without_a_coordinator_only_what_they_ask_for_is_said():
    found = judged({1.0: 86_400}, None, 0.0)
    assert found["can_be_kept"] is None
    assert max_age_lines(found) == ["max ages   86,400 pages ask for 1 crawls/s"]
    assert max_age_lines(judged({}, 1.0, 0.0)) == []
