"""The books of a run: answered once, in flight once, in whatever order the topics are read."""

import pytest

from services.world.budget import Budget
from services.world.ledger import Ledger
from services.world.plan import BudgetStep
from shared.contracts.messages import CrawlOutcome, CrawlRequest, Multipliers, PageSignal, Signal

START = 1_800_000_000.0
ORIGIN = 1_700_000_000.0
SPEED = 86_400.0


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(
        origin=ORIGIN,
        speed=SPEED,
        started_at=START,
        budget=Budget.from_steps([BudgetStep(0, 10 / SPEED)], SPEED),
    )


def request(name: str, page: int, second: float, *, timeout: float = 60.0) -> CrawlRequest:
    at = ORIGIN + second * SPEED
    return CrawlRequest(
        request_id=name,
        page_id=page,
        url="https://a.example/",
        host="a.example",
        requested_at=at,
        deadline_at=at + timeout * SPEED,
        crawl_value=1.0,
        threshold=0.5,
        reason="value",
    )


def outcome(name: str | None, result: str = "changed") -> CrawlOutcome:
    return CrawlOutcome(url="https://a.example/", crawled_at=ORIGIN, request_id=name, result=result)


def take(ledger: Ledger, message: CrawlRequest | CrawlOutcome, written_at: float) -> None:
    """Enter one record."""
    if isinstance(message, CrawlRequest):
        ledger.take_requests([message], [written_at])
    else:
        ledger.take_outcomes([message], [written_at])


def test_a_request_is_answered_once(ledger: Ledger) -> None:
    take(ledger, request("r1", 1, 0.5), START + 0.51)
    assert ledger.in_flight == 1
    take(ledger, outcome("r1"), START + 0.56)
    take(ledger, outcome("r1"), START + 0.57)

    assert (ledger.answered, ledger.answered_twice, ledger.in_flight) == (1, 1, 0)
    assert ledger.latency["request_to_outcome"].quantile(0.5) == pytest.approx(0.05, rel=0.03)
    assert ledger.latency["slot_to_request"].quantile(0.5) == pytest.approx(0.01, rel=0.03)


def test_an_outcome_read_before_its_request_is_matched(ledger: Ledger) -> None:
    take(ledger, outcome("r1"), START + 0.6)
    assert ledger.answers_without_request == 1
    take(ledger, request("r1", 1, 0.5), START + 0.5)

    assert (ledger.answered, ledger.answers_without_request, ledger.in_flight) == (1, 0, 0)


def test_an_answer_twice_before_its_request_is_counted(ledger: Ledger) -> None:
    take(ledger, outcome("r1"), START + 0.6)
    take(ledger, outcome("r1"), START + 0.6)

    assert ledger.answered_twice == 1


def test_a_page_in_flight_twice_is_found(ledger: Ledger) -> None:
    take(ledger, request("r1", 1, 0.5), START + 0.5)
    take(ledger, request("r2", 1, 0.7), START + 0.7)
    take(ledger, outcome("r1"), START + 0.9)

    assert ledger.duplicates_in_flight == 1


def test_a_page_asked_for_again_after_its_answer_is_not_in_flight_twice(ledger: Ledger) -> None:
    take(ledger, request("r1", 1, 0.5), START + 0.5)
    # Read before the outcome that was earlier.
    take(ledger, request("r2", 1, 0.9), START + 0.9)
    take(ledger, outcome("r1"), START + 0.7)
    take(ledger, outcome("r2"), START + 1.0)

    assert ledger.duplicates_in_flight == 0
    assert ledger.answered == 2


def test_a_page_asked_for_again_after_its_deadline_is_a_retry(ledger: Ledger) -> None:
    take(ledger, request("r1", 1, 0.5, timeout=1.0), START + 0.5)
    take(ledger, request("r2", 1, 1.6), START + 1.6)
    take(ledger, outcome("r1"), START + 2.0)

    assert ledger.duplicates_in_flight == 0


def test_a_request_written_twice_is_found(ledger: Ledger) -> None:
    take(ledger, request("r1", 1, 0.5), START + 0.5)
    take(ledger, request("r1", 1, 0.5), START + 0.6)

    assert ledger.repeated_requests == 1
    assert ledger.in_flight == 1


def test_crawls_that_nobody_asked_for_are_counted(ledger: Ledger) -> None:
    take(ledger, outcome(None), START)

    assert ledger.unasked == 1
    assert ledger.answered == 0


def test_requests_are_counted_by_slot_and_by_arrival(ledger: Ledger) -> None:
    for number in range(10):
        take(ledger, request(f"r{number}", number, number / 10), START + 1.1)

    assert ledger.per_second == {0: 10}
    assert ledger.per_second_of_arrival == {1: 10}
    assert ledger.achieved_rate(2.5) == 5.0


def test_the_hop_of_a_signal_is_timed(ledger: Ledger) -> None:
    ledger.take_signals([Signal("https://a.example/", "ping", 5.0)], [START + 1.0])
    signal = PageSignal(1, "https://a.example/", "a.example", "ping", 5.0)
    ledger.take_page_signals([signal], [START + 1.02])

    assert ledger.latency["signal_to_page_signal"].quantile(0.99) == pytest.approx(0.02, rel=0.03)
    assert (ledger.signals, ledger.page_signals) == (1, 1)


def test_a_change_of_the_budget_is_timed(ledger: Ledger) -> None:
    ledger.bandwidth(20 / SPEED, START + 2.0)
    ledger.multiplier(multipliers(10 / SPEED), START + 2.05)
    ledger.multiplier(multipliers(20 / SPEED), START + 2.1)
    for number in range(200):
        second = 2.5 + number * 0.05
        take(ledger, request(f"r{number}", number, second), START + second)

    (step,) = ledger.bandwidth_steps()
    assert step["to_per_second"] == pytest.approx(20)
    assert step["from_per_second"] == pytest.approx(10)
    assert step["seconds"] == pytest.approx(0.4, abs=0.2)
    assert ledger.latency["bandwidth_to_multipliers"].quantile(0.5) == pytest.approx(0.1, rel=0.03)


def test_the_end_of_the_run_is_no_step(ledger: Ledger) -> None:
    ledger.closed = True
    ledger.bandwidth(0.0, START + 2.0)

    assert ledger.bandwidth_steps() == []


def multipliers(rate: float) -> Multipliers:
    return Multipliers(
        version=1,
        computed_at=ORIGIN,
        effective_at=ORIGIN,
        multiplier=1.0,
        crawls_per_second=rate,
        first_slot=0.0,
        allotments=[],
    )


def test_a_budget_that_somebody_set_meanwhile_is_the_budget_from_then_on(
    ledger: Ledger,
) -> None:
    before = ledger.budget.rate_at(1.0)
    ledger.bandwidth(3 * before / SPEED, START + 2.0)
    assert ledger.budget.rate_at(1.9) == before
    assert ledger.budget.rate_at(2.1) == pytest.approx(3 * before)
    assert ledger.budget.allowed(10.0, 11.0) == pytest.approx(3 * before)
