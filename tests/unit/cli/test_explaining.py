"""Why a page was, or was not, crawled: each state put into the right words."""

from typing import Any

import numpy as np
import pytest

from shared.store.page_status import AWAY, STATUS_NAMES
from shared.views.explaining import explain, lines
from shared.views.page_value import Bounds, value_curve

NOW = 1_700_864_000.0
DAY = 86_400.0


def known(**changes: Any) -> dict[str, Any]:
    page: dict[str, Any] = {
        "url": "https://a.example/",
        "page_id": 1,
        "shard": 0,
        "status": "active",
        "state": {
            "importance": 2.0,
            "class_weight": 1.0,
            "max_age_days": None,
            "last_crawled_at": NOW - 10 * DAY,
            "signals": 0,
        },
        "parameters": {
            "unsignalled_change_rate": 0.1,
            "signal_evidence": 0.5,
            "signal_rate": 0.0,
            "change_rate": 0.1,
        },
        "host": {"host": "a.example", "max_crawls_per_second": None, "blocked_until": None},
        "crawls": [
            {"crawled_at": NOW - 10 * DAY, "interval_days": 3.0, "signals": 1, "changed": True}
        ],
    }
    page["state"] |= changes.pop("state", {})
    page["host"] |= changes.pop("host", {})
    return page | changes


def test_the_value_without_signals_is_the_closed_form() -> None:
    answer = explain(known(), None, 1.0, NOW)

    u = 0.1 * 10
    assert answer["decision"]["crawl_value"] == pytest.approx(
        2 / 0.1 * (1 - (1 + u) * 2.718281828459045**-u)
    )
    assert answer["decision"]["expected_freshness"] == pytest.approx(2.718281828459045**-u)


def test_a_page_above_the_threshold_is_next() -> None:
    answer = explain(known(), None, 0.1, NOW)

    assert any("has reached the threshold" in reason for reason in answer["why"])
    assert answer["decision"]["due_at"] == NOW


def test_a_page_below_the_threshold_is_due_later() -> None:
    answer = explain(known(), None, 15.0, NOW)

    assert answer["decision"]["due_at"] > NOW
    assert any("below the threshold" in reason for reason in answer["why"])


def test_a_page_that_is_never_worth_a_crawl_says_so() -> None:
    answer = explain(known(), None, 50.0, NOW)

    assert answer["decision"]["due_at"] is None
    assert any("time alone never" in reason for reason in answer["why"])


def test_a_bound_on_the_age_makes_it_due() -> None:
    answer = explain(known(state={"max_age_days": 12.0}), None, 50.0, NOW)

    assert answer["decision"]["due_at"] == pytest.approx(NOW + 2 * DAY)


def test_the_curve_goes_from_the_last_crawl_through_now_to_the_threshold_when_due() -> None:
    page = known(state={"signals": 2})
    decision = explain(page, None, 15.0, NOW)["decision"]
    curve = value_curve(page, decision, NOW)
    assert curve is not None
    at, value = curve["at"], curve["value"]
    assert (at[0], at[-1] > decision["due_at"] > NOW) == (NOW - 10 * DAY, True)
    assert np.interp(NOW, at, value) == pytest.approx(decision["crawl_value"], rel=1e-3)
    assert np.interp(decision["due_at"], at, value) == pytest.approx(15.0, rel=1e-3)


def test_a_page_that_was_never_crawled_has_no_curve() -> None:
    page = known(state={"last_crawled_at": None})
    assert value_curve(page, explain(page, None, 1.0, NOW)["decision"], NOW) is None


@pytest.mark.parametrize(
    ("page", "words"),
    [
        (known(status="removed"), "it is removed"),
        (known(status="gone"), "it is gone"),
        (known(status="redirected"), "its address only leads to another one"),
        (known(status="duplicate"), "another URL is the one to keep"),
        (known(status="disallowed"), "robots.txt forbids it"),
        (known(state={"last_crawled_at": None}), "never crawled"),
        (known(host={"blocked_until": NOW + DAY}), "blocked until"),
        (known(host={"max_crawls_per_second": 0.5}), "at most 0.5"),
        (known(host={"max_open_requests": 3}), "at most 3 open requests"),
        (known(host={"max_crawls_per_second": 0.5, "max_open_requests": 3}), "at most 3 open"),
    ],
)
def test_other_reasons(page: dict[str, Any], words: str) -> None:
    answer = explain(page, None, 1.0, NOW)

    assert any(words in reason for reason in answer["why"])


def test_without_a_multiplier_the_coordinator_is_named() -> None:
    assert any("coordinator" in reason for reason in explain(known(), None, None, NOW)["why"])


def test_when_a_page_that_is_away_is_looked_at_again_is_said() -> None:
    for status in AWAY:
        page = known(status=STATUS_NAMES[status])
        live = {"multiplier": 3.0, "host_multiplier": 1.0, "crawl_value": 9.0, "due_at": None}
        live |= {"in_flight": False, "class": "not now", "retry_at": NOW + 2 * DAY}
        assert "looked at again from" in explain(page, live, 2.0, NOW)["why"][1]
        assert "2 days" in explain(page, live, 2.0, NOW)["why"][1]


def test_the_scheduler_knows_better() -> None:
    live = {
        "multiplier": 3.0,
        "host_multiplier": 1.0,
        "crawl_value": 9.0,
        "due_at": NOW + DAY,
        "in_flight": True,
        "deadline_at": NOW + 60,
        "class": "value",
        "retry_at": None,
    }
    answer = explain(known(), live, 2.0, NOW)

    assert answer["decision"]["threshold"] == 4.0
    assert answer["decision"]["crawl_value"] == 9.0
    assert any("asked for now" in reason for reason in answer["why"])


SILENT: dict[str, Any] = {
    "multiplier": 3.0,
    "host_multiplier": 0.0,
    "crawl_value": 9.0,
    "due_at": NOW + DAY,
    "in_flight": False,
    "class": "not now",
    "unanswered": 3,
    "retry_at": NOW + DAY,
}


def test_how_many_requests_nobody_answered_is_said_and_until_when_the_page_waits() -> None:
    stored = {"unanswered": 2, "unanswered_since": NOW - 500.0}
    for page, live, count, until in (
        (known(state=stored), None, 2, "2023-11-24 22:15:00Z (in 0.00116 days)"),
        (known(), SILENT, 3, "2023-11-25 22:13:20Z (in 1 days)"),
    ):
        answer = explain(page, live, 2.0, NOW)
        [said] = [reason for reason in answer["why"] if reason.startswith("Nobody answered")]
        assert said.startswith(f"Nobody answered the last {count} requests for it: ")
        assert said.endswith(f" it is left alone until {until}.")
        assert f"unanswered                {count}" in "\n".join(lines(answer, NOW))


def test_a_page_that_nobody_answered_and_that_waits_no_more_only_says_so() -> None:
    said = "Nobody answered the last request for it."
    stored = {"unanswered": 1, "unanswered_since": NOW - DAY}
    assert said in explain(known(state=stored), None, 2.0, NOW)["why"]
    live = SILENT | {"class": "urgent", "unanswered": 1}
    assert said in explain(known(), live, 2.0, NOW)["why"]
    live = SILENT | {"class": "value", "unanswered": 0}
    answer = explain(known(state=stored), live, 2.0, NOW)  # it was answered a moment ago
    assert not [reason for reason in answer["why"] if "answered" in reason]
    assert answer["state"]["unanswered"] == 0


def test_a_page_whose_crawl_failed_waits_though_no_scheduler_is_asked() -> None:
    failed = {"failures": 2, "misses": 0, "last_attempt_at": NOW - 100.0}
    [said] = [r for r in explain(known(state=failed), None, 2.0, NOW)["why"] if "failed" in r]
    assert said == "It waits after a failed crawl until 2023-11-24 22:21:40Z (in 0.00579 days)."
    answer = explain(known(state=failed), None, 2.0, NOW + DAY)
    assert not [reason for reason in answer["why"] if "failed" in reason]


def test_people_read_times_and_crawls() -> None:
    text = "\n".join(lines(explain(known(), None, 1.0, NOW), NOW))

    assert "10 days ago" in text
    assert "changed after 3 days with 1 signals" in text
    assert "unsignalled change rate" in text


LIVE: dict[str, Any] = SILENT | {"unanswered": 0, "retry_at": None, "max_age_days": None}


def the_reason(page: dict[str, Any], live: dict[str, Any] | None, bounds: Bounds) -> str:
    """What stands last: its value, or its age."""
    reason: str = explain(page, live, 50.0, NOW, bounds=bounds)["why"][-1]
    return reason


def test_a_page_beyond_its_maximum_age_is_not_said_to_wait_for_its_value() -> None:
    beyond = "It is beyond its maximum age since 2023-11-22 22:13:20Z (2 days ago): of those the "
    for page, live, bounds in (
        (known(state={"max_age_days": 8.0}), None, Bounds()),
        (known(), None, Bounds(default_max_age_days=8.0)),
        (known(), LIVE | {"class": "max-age", "max_age_days": 8.0}, Bounds()),
    ):
        assert the_reason(page, live, bounds) == f"{beyond}latest goes first."
    soon = " 50: it is due 2023-11-26 22:13:20Z (in 2 days), beyond its maximum age."
    assert the_reason(known(), None, Bounds(default_max_age_days=12.0)).endswith(soon)
    waiting = {"class": "value", "due_at": NOW + 2 * DAY, "max_age_days": 12.0}
    assert the_reason(known(), LIVE | {"multiplier": 50.0} | waiting, Bounds()).endswith(soon)


def test_a_page_below_the_floor_is_not_next_whatever_the_threshold_and_its_age_are() -> None:
    floor = Bounds(least_value=15.0)
    page = known(state={"max_age_days": 8.0})
    for live in (None, LIVE | {"class": "value"}):
        answer = explain(page, live, 1e-3, NOW, bounds=floor)
        assert "is below 15, for less than which no slot is spent: it" in answer["why"][-1]
    reached = value_curve(page, explain(page, None, 1e-3, NOW, bounds=floor)["decision"], NOW)
    due = explain(page, None, 1e-3, NOW, bounds=floor)["decision"]["due_at"]
    assert reached is not None
    assert np.interp(due, reached["at"], reached["value"]) == pytest.approx(15.0, rel=1e-3)
    assert "beyond its maximum age since" in the_reason(page, None, Bounds(least_value=1.0))


def test_every_rule_of_its_host_is_named_and_of_two_rates_the_strictest() -> None:
    rules = {"max_crawls_per_second": 0.5, "crawl_delay": 10.0, "max_open_requests": 3}
    later = {"blocked_until": NOW + DAY, "asked_until": NOW + 2 * DAY, "failures": 2}
    why = explain(known(host=rules | later), None, 1.0, NOW)["why"]
    assert [reason for reason in why if reason.startswith("Its host")] == [
        "Its host is blocked until 2023-11-26 22:13:20Z (in 2 days) (the host asked for it).",
        "Its host failed 2 times in a row: see `freshet hosts show`.",
        "Its host takes at most 0.1 crawls a second (robots.txt).",
        "Its host takes at most 3 open requests.",
    ]
    # Lifted one after the other, in whatever order.
    rules["crawl_delay"] = None
    why = explain(known(host=rules | {"blocked_until": NOW - 1.0}), None, 1.0, NOW)["why"]
    assert [reason for reason in why if reason.startswith("Its host")] == [
        "Its host takes at most 0.5 crawls a second (operators).",
        "Its host takes at most 3 open requests.",
    ]


def test_a_page_that_is_away_and_asked_for_says_so() -> None:
    live = LIVE | {"in_flight": True, "deadline_at": NOW + 60.0, "retry_at": NOW - DAY}
    why = explain(known(status="gone"), live, 2.0, NOW)["why"]
    assert [reason.split(";")[0] for reason in why] == [
        "It is not crawled: it is gone.",
        "It is asked for now",
    ]


def test_what_is_kept_for_the_class_of_a_page_is_said() -> None:
    page = known(state={"class": "partner"})
    why = explain(page, None, 15.0, NOW, bounds=Bounds(class_share=0.3))["why"]
    assert any("Of the slots of its shard 0.3 are kept for its class partner" in r for r in why)


def test_a_class_that_no_setting_names_is_said_to_count_for_nothing() -> None:
    page, unnamed = known(state={"class": "partner"}), Bounds(names_class=False)
    said = "Its class partner counts for nothing: FRESHET_CLASSES has none of it."
    assert said in explain(page, None, 15.0, NOW, bounds=unnamed)["why"]
    for other, bounds in ((page, Bounds()), (known(), unnamed)):
        assert not [
            r for r in explain(other, None, 15.0, NOW, bounds=bounds)["why"] if "class" in r
        ]


def test_where_the_oldest_page_goes_first_the_value_is_its_age() -> None:
    uniform = Bounds(uniform=True)
    answer = explain(known(), None, 12.0, NOW, bounds=uniform)
    assert answer["decision"]["crawl_value"] == pytest.approx(10.0)
    assert answer["decision"]["due_at"] == pytest.approx(NOW + 2 * DAY)
    curve = value_curve(known(), answer["decision"], NOW, bounds=uniform)
    assert curve is not None
    assert np.interp(NOW + 2 * DAY, curve["at"], curve["value"]) == pytest.approx(12.0)


def test_a_new_page_that_failed_again_and_again_is_not_said_to_go_first() -> None:
    page = known(state={"last_crawled_at": None})
    assert "go first" in explain(page, LIVE | {"class": "new"}, 1.0, NOW)["why"][-1]
    assert "goes by its value" in explain(page, LIVE | {"class": "value"}, 1.0, NOW)["why"][-1]


FAILED: dict[str, Any] = {"failures": 3, "misses": 0, "last_attempt_at": NOW - DAY}


def test_a_page_that_failed_three_times_is_not_late_but_waits() -> None:
    beyond = known(state=FAILED | {"max_age_days": 8.0})
    answer = explain(beyond, None, 5.0, NOW)
    waits = "It waits after a failed crawl until 2023-12-02 22:13:20Z (in 8 days)."
    assert waits in answer["why"]
    assert answer["decision"]["due_at"] == NOW + 8 * DAY
    assert answer["why"][-1].endswith(
        "has reached the threshold 5: it waits, and is due 2023-12-02 22:13:20Z (in 8 days)."
    )
    # With two failures it goes first for its age, once it has waited.
    twice = known(
        state=FAILED | {"failures": 2, "last_attempt_at": NOW - 60.0} | {"max_age_days": 8}
    )
    assert explain(twice, None, 5.0, NOW)["why"][-1].endswith(
        "(2 days ago): it waits, and is due 2023-11-24 22:22:20Z (in 0.00625 days)."
    )
    never = known(state=FAILED | {"last_crawled_at": None})
    assert "goes by its value" in explain(never, None, 1.0, NOW)["why"][-1]


def test_a_page_that_its_scheduler_lets_wait_is_not_said_to_be_next() -> None:
    live = LIVE | {"due_at": NOW + DAY, "retry_at": NOW + DAY}
    assert the_reason(known(), live | {"multiplier": 1.0}, Bounds()).endswith(
        "reached the threshold 1: it waits, and is due 2023-11-25 22:13:20Z (in 1 days)."
    )
    free = live | {"multiplier": 1.0, "class": "value", "due_at": NOW}
    assert the_reason(known(), free, Bounds()).endswith("threshold 1: it is next in turn.")


def test_a_page_that_somebody_asks_for_is_due_at_once_though_no_scheduler_is_asked() -> None:
    asked = {"urgent_at": NOW - 60.0}
    for state in (asked, FAILED | asked):  # asked for since it failed
        answer = explain(known(state=state), None, 50.0, NOW)
        assert answer["decision"]["due_at"] == NOW
        assert "Somebody asks for it at once: it goes first." in answer["why"]
        assert not [reason for reason in answer["why"] if "failed" in reason]
    crawled = explain(known(state={"urgent_at": NOW - 11 * DAY}), None, 50.0, NOW)
    assert crawled["decision"]["due_at"] is None


def test_when_a_page_that_is_away_is_looked_at_is_said_though_no_scheduler_is_asked() -> None:
    gone = known(status="gone", state=FAILED | {"misses": 3})
    why = explain(gone, None, 1.0, NOW)["why"]
    assert why[-1].startswith("It may be looked at again from 2023-11-24 22:13:20Z")
    assert len(explain(known(status="removed", state=FAILED), None, 1.0, NOW)["why"]) == 1
