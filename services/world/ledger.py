"""The books of a run: every request answered once, every second within the budget, every hop timed.

Fed with what stands on the topics, in the order of each topic; topics may be read at different
paces, so an outcome may come before its request.
"""

import math
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from services.world.budget import Budget, seconds_until_reached
from services.world.latency import LatencyHistogram
from shared.contracts.messages import CrawlOutcome, CrawlRequest, Multipliers, PageSignal

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 500_000
"""Answered requests, and signals on their way, that are remembered to match what comes later."""

STEP_WATCH_SECONDS = 15.0
"""Crawls are timed for so long after a change of the budget."""

LIVE_WINDOW_SECONDS = 3

HOPS = (
    "signal_to_page_signal",
    "slot_to_request",
    "request_to_outcome",
    "outcome_to_applied",
    "bandwidth_to_multipliers",
)


@dataclass(slots=True)
class _Open:
    """A request that waits for its outcome."""

    page_id: int
    written_at: float
    deadline_at: float
    followers: list[float] = field(default_factory=list)
    """When the page was asked for again before the deadline."""


@dataclass(slots=True)
class _Watch:
    """A change of the budget whose effect is timed."""

    at: float
    rate: float
    before: float
    times: list[float] = field(default_factory=list)


class Ledger:
    """Counts and checks of a run.

    `written_at` are the records' times on the broker, wall Unix seconds; times in messages are
    clock Unix seconds. The run begins at `started_at` on the wall, which is `origin` on the clock.
    """

    def __init__(self, *, origin: float, speed: float, started_at: float, budget: Budget) -> None:
        self.budget = budget
        self.requests = 0
        self.answered = 0
        self.answered_twice = 0
        self.repeated_requests = 0
        self.unasked = 0
        self.duplicates_in_flight = 0
        self.signals = 0
        self.page_signals = 0
        self.dead_letters = 0
        self.results: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.dead_letter_reasons: Counter[str] = Counter()
        self.latency = {hop: LatencyHistogram() for hop in HOPS}
        self.multipliers: Multipliers | None = None
        self.closed = False
        """Set when the run is over: the budget that is then taken away is no step of it."""
        self.per_second: Counter[int] = Counter()
        self.per_second_of_arrival: Counter[int] = Counter()
        self._origin = origin
        self._speed = speed
        self._started_at = started_at
        self._open: dict[str, _Open] = {}
        self._last_request_of: dict[int, str] = {}
        self._answered: OrderedDict[str, None] = OrderedDict()
        self._early: dict[str, tuple[CrawlOutcome, float]] = {}
        self._signalled: OrderedDict[tuple[str, str, float], float] = OrderedDict()
        self._watches: list[_Watch] = []
        self._bandwidth_written: deque[tuple[float, float]] = deque()

    @property
    def in_flight(self) -> int:
        """Requests that wait for an outcome."""
        return len(self._open)

    def request(self, request: CrawlRequest, written_at: float) -> None:
        """A record of `crawl-requests`."""
        self.requests += 1
        self.reasons[request.reason] += 1
        slot = (request.requested_at - self._origin) / self._speed
        arrival = written_at - self._started_at
        self.per_second[math.floor(slot)] += 1
        self.per_second_of_arrival[math.floor(arrival)] += 1
        self.latency["slot_to_request"].add(arrival - slot)
        for watch in self._watches:
            if arrival <= watch.at + STEP_WATCH_SECONDS:
                watch.times.append(arrival)
        self._note_open(request, written_at)

    def outcome(self, outcome: CrawlOutcome, written_at: float) -> None:
        """A record of `crawl-outcomes`."""
        self.results[outcome.result or "digest"] += 1
        if outcome.request_id is None:
            self.unasked += 1
        elif outcome.request_id in self._answered:
            self.answered_twice += 1
        elif outcome.request_id in self._open:
            self._settle(outcome.request_id, written_at)
        elif outcome.request_id in self._early:
            self.answered_twice += 1
        else:
            self._early[outcome.request_id] = (outcome, written_at)

    def signal(self, url: str, source: str, observed_at: float, written_at: float) -> None:
        """A record of `signals` that the world sent."""
        self.signals += 1
        _remember(self._signalled, (url, source, observed_at), written_at)

    def page_signal(self, signal: PageSignal, written_at: float) -> None:
        """A record of `page-signals`."""
        self.page_signals += 1
        sent_at = self._signalled.pop((signal.url, signal.source, signal.observed_at), None)
        if sent_at is not None:
            self.latency["signal_to_page_signal"].add(written_at - sent_at)

    def applied(self, seconds: float) -> None:
        """The estimator's effects of an outcome were durable so long after it was written."""
        self.latency["outcome_to_applied"].add(seconds)

    def dead_letter(self, stage: str, topic: str, error: str) -> None:
        """A record of `dead-letters`."""
        self.dead_letters += 1
        self.dead_letter_reasons[f"{stage}: {topic}: {error[:160]}"] += 1

    def bandwidth(self, crawls_per_second: float, written_at: float) -> None:
        """A record of `bandwidth` that was written while the run goes on."""
        if self.closed:
            return
        at = written_at - self._started_at
        before = self.budget.rate_at(max(at - 1.0, 0.0))
        rate = crawls_per_second * self._speed
        if not math.isclose(rate, self.budget.rate_at(at), rel_tol=1e-9):
            self.budget = self.budget.with_step(at, rate)
        self._watches.append(_Watch(at, rate, before))
        self._bandwidth_written.append((crawls_per_second, written_at))

    def multiplier(self, message: Multipliers, written_at: float) -> None:
        """A record of `multipliers`."""
        self.multipliers = message
        if self._bandwidth_written:
            rate, at = self._bandwidth_written[0]
            if math.isclose(message.crawls_per_second, rate, rel_tol=1e-9, abs_tol=1e-12):
                self.latency["bandwidth_to_multipliers"].add(written_at - at)
                self._bandwidth_written.popleft()

    def achieved_rate(self, time: float) -> float:
        """Requests per wall second over the last whole seconds before a time since the start."""
        last = math.floor(time)
        seconds = range(max(last - LIVE_WINDOW_SECONDS, 0), last)
        total = sum(self.per_second_of_arrival.get(second, 0) for second in seconds)
        return total / len(seconds) if seconds else 0.0

    def bandwidth_steps(self) -> list[dict[str, float | None]]:
        """For each change of the budget, how many seconds the crawls took to follow it."""
        return [
            {
                "at_seconds": round(watch.at, 3),
                "from_per_second": watch.before,
                "to_per_second": watch.rate,
                "seconds": seconds_until_reached(
                    np.array(watch.times), watch.at, watch.rate, watch.before
                ),
            }
            for watch in self._watches
        ]

    @property
    def answers_without_request(self) -> int:
        """Outcomes that name a request which nobody has seen."""
        return len(self._early)

    def _note_open(self, request: CrawlRequest, written_at: float) -> None:
        if request.request_id in self._open or request.request_id in self._answered:
            self.repeated_requests += 1
            return
        previous = self._open.get(self._last_request_of.get(request.page_id, ""))
        if previous is not None and request.requested_at < previous.deadline_at:
            previous.followers.append(written_at)
        entry = _Open(request.page_id, written_at, request.deadline_at)
        self._open[request.request_id] = entry
        self._last_request_of[request.page_id] = request.request_id
        early = self._early.pop(request.request_id, None)
        if early is not None:
            self._settle(request.request_id, early[1])

    def _settle(self, request_id: str, written_at: float) -> None:
        entry = self._open.pop(request_id)
        self.answered += 1
        self.latency["request_to_outcome"].add(written_at - entry.written_at)
        # A page asked for again before its outcome was there was in flight twice.
        self.duplicates_in_flight += sum(at < written_at for at in entry.followers)
        if self._last_request_of.get(entry.page_id) == request_id:
            del self._last_request_of[entry.page_id]
        _remember(self._answered, request_id, None)


def _remember(memory: OrderedDict[K, V], key: K, value: V) -> None:
    memory[key] = value
    if len(memory) > REMEMBERED:
        memory.popitem(last=False)
