"""A page, a batch and a host by the scheduler's rules, in plain Python: see `reference_shard`."""

import math
from dataclasses import dataclass

from shared.contracts.objectives import FRESHNESS
from shared.policy.kernels.crawl_value import crawl_value_scalar
from shared.policy.objectives import objective_value_scalar

NEVER = -math.inf
DAY = 86_400.0


@dataclass
class ReferencePage:
    host: str
    importance: float = 1.0
    alpha: float = 1 / 60
    kappa: float = 0.0
    gamma: float = 0.0
    last_crawled_at: float = NEVER
    last_attempt_at: float = NEVER
    last_signal_at: float = NEVER
    max_age: float = math.inf
    signals: float = 0
    heard: int = 0
    """The same as Postgres has it: every signal counts one."""
    batch: "ReferenceBatch | None" = None
    """Of its last signals, `in_batch` of them."""
    in_batch: int = 0
    earlier: float = 0.0
    """What those before count."""
    failures: int = 0
    unanswered: int = 0
    misses: int = 0
    gone: bool = False
    deadline: float = NEVER
    requested_at: float = NEVER
    added_at: float = NEVER

    def tier(self, now, retry):
        if self.deadline > now or now < self.retry_at(retry):
            return None
        if self.gone or self.failed >= 3:
            return 0
        if self.last_crawled_at == NEVER:
            return 3
        return 2 if now - self.last_crawled_at >= self.max_age else 0

    @property
    def is_back(self):
        """It was gone, and something said so since that it is there."""
        return not self.gone and self.misses >= 3

    @property
    def failed(self):
        """Crawls in a row that failed, or were not answered; one that waits for its answer is."""
        failures = 1 if self.is_back else self.failures
        return failures + self.unanswered + (self.deadline > NEVER)

    def retry_at(self, retry):
        failed = self.failed
        if not failed:
            return NEVER
        last = self.deadline if self.deadline > NEVER else self.last_attempt_at
        misses = 0 if self.is_back else self.misses
        others = failed - misses if misses >= 3 else failed
        wait = retry * 2.0 ** max(others - 1, 0)
        if misses >= 3 and others not in (1, 2):
            wait = max(wait, DAY * 2.0 ** (misses - 3))
        elif 0 < misses < 3 and self.last_crawled_at > NEVER:
            wait = max(wait, 0.5 * (last - self.last_crawled_at))
        elif misses == 0 and failed > 2 and self.last_crawled_at > NEVER:
            wait = max(wait, last - self.last_crawled_at)
        return last + min(wait, 90 * DAY)

    def value(self, now, uniform, objective=FRESHNESS):
        days = (now - self.last_crawled_at) / DAY
        if uniform:
            return days
        if objective != FRESHNESS and self.last_crawled_at > NEVER:
            parameters = self.alpha, self.kappa, self.gamma
            unit = objective_value_scalar(objective, *parameters, days, float(self.signals))
            return self.importance * unit
        evidence = self.kappa * self.signals
        return crawl_value_scalar(
            self.importance, self.alpha, self.kappa, self.gamma, days, evidence
        )


@dataclass(eq=False)
class ReferenceBatch:
    """Signals of a host that come together are true or false together."""

    last_at: float
    odds: float = 0.0
    told: float = 0.0
    information: float = 1.0

    def evidence(self, kappa, odds):
        """Of one of its signals."""
        return math.log1p(math.expm1(kappa) * math.exp(odds))

    def value(self, page):
        """What a page's signals count as it is told."""
        worth = self.evidence(page.kappa, self.told) / page.kappa
        page.signals = page.earlier + page.in_batch * worth

    def learn(self, page, days, changed):
        """A crawl of one of its pages says what it is worth."""
        kappa = self.evidence(page.kappa, self.odds)
        s = page.alpha * days + page.kappa * page.earlier + page.in_batch * kappa
        slope = page.in_batch * (1.0 - math.exp(-kappa))
        odds_of_none = 1.0 / math.expm1(s)
        self.information += slope**2 * odds_of_none
        step = (slope * odds_of_none if changed else -slope) / self.information
        self.odds = min(max(self.odds + step, -6.0), 6.0)


@dataclass
class ReferenceHost:
    rate: float
    tokens: float = 2.0
    filled_at: float = NEVER
    blocked_until: float = NEVER
    most_open: int = 0

    def refill(self, now):
        if self.filled_at > NEVER:
            self.tokens = min(2.0, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now

    def note_change(self, now):
        """Its limit is another one from now on; slots of before may still be filled."""
        is_full = self.tokens + (now - self.filled_at) * self.rate >= 2.0
        if is_full and self.rate > 0:
            now = min(now, self.filled_at + (2.0 - self.tokens) / self.rate)
        self.refill(now)

    def is_usable(self, now):
        if now < self.filled_at:
            return False
        self.refill(now)
        return self.rate > 0 and self.tokens >= 1.0 - 1e-6 and self.blocked_until <= now
