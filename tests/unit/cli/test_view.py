"""The terminal view: a picture from a status, and its one-line form."""

from collections import deque
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from deploy.local.supervisor import ChildState, ChildStatus
from services.run.view import LiveView, sparkline, status_line

STATUS: dict[str, Any] = {
    "state": "running",
    "day": 3.25,
    "end_day": 60.0,
    "freshness": 0.9,
    "freshness_now": 0.95,
    "bandwidth_per_second": 200.0,
    "achieved_per_second": 199.0,
    "multiplier": 1.5,
    "shards": 8,
    "requests": 1234,
    "answered": 1200,
    "in_flight": 34,
    "reasons": {"value": 1200, "new": 34},
    "results": {"changed": 200, "unchanged": 1000},
    "signals": 77,
    "page_signals": 70,
    "dead_letters": 0,
    "dead_letter_reasons": {},
    "latency_seconds": {"request_to_outcome": {"p50": 0.02, "p99": 0.045, "count": 9}},
}


def shown(status: dict[str, Any]) -> str:
    """The picture of a run that stands so."""
    children = [
        ChildStatus("scheduler", 11, ChildState.RUNNING, 0),
        ChildStatus("estimator", None, ChildState.BACKING_OFF, 2),
    ]
    session = SimpleNamespace(
        status=lambda: status,
        url="http://127.0.0.1:6069/",
        options=SimpleNamespace(world="trace"),
        stack=SimpleNamespace(supervisor=SimpleNamespace(children=lambda: children)),
    )
    view = LiveView()
    view.show(session)
    view.close()
    console = Console(width=150, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(view.picture(session, status))
        return console.export_text()


def test_the_picture_shows_all_that_matters() -> None:
    text = shown(STATUS)

    for part in (
        "day 3.25 of 60",
        "0.9000 so far",
        "199.0 of 200.0",
        "1.5",
        "1,234 (34 in flight)",
        "new 34  value 1,200",
        "request to outcome 45 ms",
        "backing off",
        "http://127.0.0.1:6069/",
    ):
        assert part in text


def test_what_strangers_have_written_is_shown_and_obeyed_by_nobody() -> None:
    reason = "source '[/red][blink]a\x1b[2J' sends more than 20 signals a second"
    text = shown(STATUS | {"dead_letters": 1, "dead_letter_reasons": {reason: 1}})

    assert "source '[/red][blink]a\\x1b[2J' sends more than 20 signals" in text


def test_the_line_says_the_same_in_short() -> None:
    line = status_line(STATUS)

    assert "freshness 0.9000" in line
    assert "199.0/200.0" in line
    assert "λ₀ -" in status_line(STATUS | {"multiplier": None})


def test_a_sparkline_keeps_to_its_bounds() -> None:
    assert sparkline(deque([0.0, 0.5, 1.0, 9.0, -1.0]), low=0.0, high=1.0) == "▁▅██▁"
    assert sparkline(deque([1.0]), low=1.0, high=1.0) == "▁"
