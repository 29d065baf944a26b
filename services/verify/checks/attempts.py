"""When a page is due after each attempt to crawl it, by what stands on the topics alone.

The rules of waiting are written down here once more, so that a mistake in those of the system shows
(`shared.rules.page_events`, `shared.rules.page_due`).
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.verify.ledger import AWAY, NO_CRAWLS, Answered, Ledger
from shared.runtime.settings import Settings

CONFIRMED_AFTER: Final = 0.5
"""A 404 is confirmed when so much of the time has passed that the page had not been crawled for."""

CONFIRMATIONS: Final = 3
"""So many 404s in a row say that a page is gone."""

PATIENCE: Final = 3
"""After so many attempts in vain, in a row, a page goes by its value, whatever its bound is."""


class Attempt(NamedTuple):
    """A page was asked for."""

    asked_at: float
    """Unix seconds, as all times here."""
    result: str | None
    """Of its crawl; None: it got the page, and does not say what it was."""
    crawled_at: float
    """Infinite: nobody answered."""
    known_at: float
    """The broker had the answer, wherever it had to be, for sure."""

    @classmethod
    def of(cls, ledger: Ledger) -> dict[str, "list[Attempt]"]:
        """URL → its attempts, in order of their slots."""
        answers: dict[str, Answered] = {}
        for answered in sorted(ledger.outcomes, key=lambda one: one.written_at):
            if answered.outcome.request_id is not None:
                # The last copy counts: an answer may be passed on to another shard.
                answers[answered.outcome.request_id] = answered
        found: dict[str, list[Attempt]] = defaultdict(list)
        for asked in ledger.requests:
            at, answer = asked.request.requested_at, answers.get(asked.request.request_id)
            attempt = cls(at, None, math.inf, math.inf)
            if answer is not None:
                crawled_at = max(at, answer.outcome.crawled_at)
                attempt = cls(at, answer.outcome.result, crawled_at, answer.written_at)
            found[asked.request.url].append(attempt)
        return found


@dataclass(slots=True)
class Standing:
    """What the attempts so far have made of a page."""

    copied_at: float
    """When its copy was crawled."""
    failures: int = 0
    """Crawls in a row that did not get the page."""
    misses: int = 0
    """404s among them."""
    unanswered: int = 0
    """Requests in a row that nobody answered."""
    is_away: bool = False
    """It was found to be away, and not crawled well since."""

    def due_after(self, attempt: Attempt, bound: float, settings: Settings) -> float:
        """Take in an attempt, which is the latest.

        Args:
            attempt: the page's.
            bound: seconds that its copy may be old.
            settings: of the system: how long requests and failures wait.

        Returns:
            Unix seconds at which the page is due by its bound; infinite: not until somebody names
            it.
        """
        is_answered = attempt.crawled_at < math.inf
        if is_answered and attempt.result not in NO_CRAWLS:
            # A request that was answered late may have the newer copy.
            self.copied_at = max(self.copied_at, attempt.crawled_at)
            self.failures = self.misses = self.unanswered = 0
            self.is_away = False
            return self.copied_at + bound
        self._count(attempt, is_answered=is_answered)
        if self.is_away:
            # Who is asked for all the same was named; one more failure, and it is away again.
            return math.inf if is_answered else attempt.asked_at + bound
        late_at = attempt.asked_at + settings.request_timeout_seconds
        failed_at = attempt.crawled_at if is_answered else late_at
        wait = self._wait(failed_at, settings)
        # News of a failure may come late; without it, the request times out.
        ready = max(failed_at + wait, min(attempt.known_at, late_at + wait))
        due = max(self.copied_at + bound, ready)
        has_claim = self.failures + self.unanswered < PATIENCE
        return due if has_claim else max(due, attempt.asked_at + bound)

    def _count(self, attempt: Attempt, *, is_answered: bool) -> None:
        if not is_answered:
            self.unanswered += 1
            return
        self.unanswered = 0
        self.failures += 1
        self.misses += attempt.result == "gone"
        self.is_away |= attempt.result in AWAY or self.misses >= CONFIRMATIONS

    def _wait(self, failed_at: float, settings: Settings) -> float:
        """Seconds for which the page is left alone after it failed."""
        first = max(settings.failed_retry_seconds, settings.least_interval_seconds)
        count, silence = self.failures + self.unanswered, failed_at - self.copied_at
        wait: float = first * 2.0 ** (count - 1)
        if self.misses:
            return max(wait, CONFIRMED_AFTER * silence)
        return max(wait, silence) if count >= PATIENCE else wait
