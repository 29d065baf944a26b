"""`freshet status`: whether maximum ages can be kept."""

import math

import pytest

from services.cli.max_ages import bounds_of, judged, judged_by, max_age_lines
from shared.runtime.page_class_terms import ClassTerms
from shared.runtime.settings import load_settings

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


def test_where_slots_are_kept_for_classes_the_rest_has_to_suffice():
    pages = {1.0: 86_400}
    assert "kept if" not in max_age_lines(judged(pages, 2.0, 300.0, by_class=0.5))[0]
    assert max_age_lines(judged(pages, 1.9, 300.0, by_class=0.5)) == [
        "max ages   86,400 pages ask for 1 crawls/s: they can be kept if enough of 0.5 of the "
        "slots, which are kept for classes, come to such pages"
    ]
    # Of the half that is everybody's, two tenths are kept for crawls by value.
    found = judged(pages, 2.4, 300.0, 0.2, 0.5)
    assert (found["kept_by_class"], found["kept_by_value"]) == (0.5, pytest.approx(0.1))
    assert (
        "0.6 of the slots, which are kept for classes and for crawls by value"
        in (max_age_lines(found)[0])
    )
    assert judged(pages, 2.5, 300.0, 0.2, 0.5)["kept_by_class"] == 0.0


def test_the_settings_say_what_is_kept():
    terms = {"news": ClassTerms(weight=2.0, share=0.3), "partner": ClassTerms(share=0.2)}
    settings = load_settings(
        classes=terms,
        reason_shares={"value": 0.2},
        default_max_age_days=1.0,
        least_interval_seconds=9.0,
    )
    pages = {math.inf: 86_000, 5.0 / DAY: 400}
    found = judged_by(settings, pages, 50.0)
    assert found == judged({1.0: 86_000, 5.0 / DAY: 400}, 50.0, 9.0, 0.2, 0.5)
    assert (found["kept_by_class"], found["too_short"]) == (0.5, 400)


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
