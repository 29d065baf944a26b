"""The books of a run: every request answered once, every second within the budget, every hop timed.

Fed with what stands on the topics, in the order of each topic; topics may be read at different
paces, so an outcome may come before its request.
"""

import math
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from services.world.budget import Budget, seconds_until_reached
from services.world.latency import LatencyHistogram
from shared.contracts.messages import CrawlOutcome, CrawlRequest, Multipliers, PageSignal, Signal

K = TypeVar("K")
V = TypeVar("V")

REMEMBERED = 500_000
"""At least so many answered requests, and signals on their way, are remembered to match what comes
later; at most twice as many."""

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


class _Open(NamedTuple):
    """A request that waits for its outcome."""

    page_id: int
    written_at: float
    deadline_at: float


class _Memory(Generic[K, V]):
    """The last things told, in two generations: the older one is forgotten as a whole."""

    def __init__(self) -> None:
        self._new: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._new or key in self._old

    def put(self, key: K, value: V) -> None:
        """Remember."""
        self._new[key] = value
        if len(self._new) > REMEMBERED:
            self._old, self._new = self._new, {}

    def take(self, key: K) -> V | None:
        """What was remembered, which is then forgotten; None: nothing."""
        value = self._new.pop(key, None)
        return self._old.pop(key, None) if value is None else value


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
        self._followers: dict[str, list[float]] = {}
        """When the pages of open requests were asked for again before the deadline."""
        self._answered: _Memory[str, bool] = _Memory()
        self._early: dict[str, float] = {}
        self._signalled: _Memory[tuple[str, str, float], float] = _Memory()
        self._watches: list[_Watch] = []
        self._bandwidth_written: deque[tuple[float, float]] = deque()

    @property
    def in_flight(self) -> int:
        """Requests that wait for an outcome."""
        return len(self._open)

    def take_requests(self, requests: Sequence[CrawlRequest], written_at: Sequence[float]) -> None:
        """Records of `crawl-requests`."""
        self.requests += len(requests)
        self.reasons.update([request.reason for request in requests])
        requested_at = np.array([request.requested_at for request in requests])
        slots = (requested_at - self._origin) / self._speed
        arrivals = np.array(written_at) - self._started_at
        _count_seconds(self.per_second, slots)
        _count_seconds(self.per_second_of_arrival, arrivals)
        self.latency["slot_to_request"].add(arrivals - slots)
        for watch in self._watches:
            watch.times += arrivals[arrivals <= watch.at + STEP_WATCH_SECONDS].tolist()
        took = [self._note_open(*pair) for pair in zip(requests, written_at, strict=True)]
        self._note_answers(took)

    def take_outcomes(self, outcomes: Sequence[CrawlOutcome], written_at: Sequence[float]) -> None:
        """Records of `crawl-outcomes`."""
        self.results.update([outcome.result or "digest" for outcome in outcomes])
        took = []
        for outcome, at in zip(outcomes, written_at, strict=True):
            name = outcome.request_id
            if name is None:
                self.unasked += 1
            elif name in self._open:
                took.append(self._settle(name, at))
            elif name in self._answered or name in self._early:
                self.answered_twice += 1
            else:
                self._early[name] = at
        self._note_answers(took)

    def take_signals(self, signals: Sequence[Signal], written_at: Sequence[float]) -> None:
        """Records of `signals`; those that say when they were observed are the world's."""
        put = self._signalled.put
        for signal, at in zip(signals, written_at, strict=True):
            if signal.observed_at is not None:
                self.signals += 1
                put((signal.url, signal.source, signal.observed_at), at)

    def take_page_signals(self, signals: Sequence[PageSignal], written_at: Sequence[float]) -> None:
        """Records of `page-signals`."""
        self.page_signals += len(signals)
        sent_at = [self._signalled.take((s.url, s.source, s.observed_at)) for s in signals]
        pairs = zip(sent_at, written_at, strict=True)
        took = [at - sent for sent, at in pairs if sent is not None]
        self.latency["signal_to_page_signal"].add(took)

    def applied(self, seconds: ArrayLike) -> None:
        """The estimator's effects of outcomes were durable so long after they were written."""
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

    def _note_open(self, request: CrawlRequest, written_at: float) -> float | None:
        """How long the request took, if it is answered already."""
        name, page_id = request.request_id, request.page_id
        if name in self._open or name in self._answered:
            self.repeated_requests += 1
            return None
        previous = self._last_request_of.get(page_id)
        if previous is not None and request.requested_at < self._open[previous].deadline_at:
            self._followers.setdefault(previous, []).append(written_at)
        self._open[name] = _Open(page_id, written_at, request.deadline_at)
        self._last_request_of[page_id] = name
        early = self._early.pop(name, None)
        return None if early is None else self._settle(name, early)

    def _settle(self, name: str, written_at: float) -> float:
        """An open request is answered; how long that took."""
        page_id, asked_at, _ = self._open.pop(name)
        self.answered += 1
        if self._followers and (followers := self._followers.pop(name, None)):
            # A page asked for again before its outcome was there was in flight twice.
            self.duplicates_in_flight += sum(at < written_at for at in followers)
        if self._last_request_of.get(page_id) == name:
            del self._last_request_of[page_id]
        self._answered.put(name, True)
        return written_at - asked_at

    def _note_answers(self, took: Sequence[float | None]) -> None:
        self.latency["request_to_outcome"].add([each for each in took if each is not None])


def _count_seconds(counts: Counter[int], times: NDArray[np.float64]) -> None:
    seconds, found = np.unique(np.floor(times).astype(np.int64), return_counts=True)
    for second, count in zip(seconds.tolist(), found.tolist(), strict=True):
        counts[second] += count
