"""The scheduler's rules once more, page by page in plain Python: the oracle of the tests."""

import math
from dataclasses import dataclass, field

import numpy as np

from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.events import NO_REQUEST, Outcomes
from services.scheduler.state.packing import set_own_rate, updated_at
from services.scheduler.state.rows import PAGE
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.policy.kernels.crawl_value import crawl_value_scalar
from shared.rules.page_events import FAILED, IS_GONE, UNCHANGED

NEVER = -math.inf
DAY = 86_400.0


def rules(
    *,
    timeout=120.0,
    speed=1.0,
    uniform=False,
    delay=0.0,
    retry=300.0,
    max_age_days=math.inf,
    host_rate=1.0,
):
    return ShardRules(PickingRules(timeout, speed, uniform), delay, retry, max_age_days, host_rate)


def url_of(host, number):
    return identify(f"https://{host}.example/{number}")


class PageView:
    """All that a shard remembers of a page, wherever it keeps it."""

    def __init__(self, shard, page_id):
        self.shard, self.row = shard, shard.row_of(page_id)

    def _columns(self, name):
        page = self.shard.pages[self.row]
        if name in PAGE.names:
            return page
        return self.shard.attempts.rows[page["attempt"]] if page["attempt"] else None

    def __getitem__(self, name):
        if name == "last_signal_at":
            return self.shard.signal_times.of(self.row)
        if name == "updated_at":
            return updated_at(self.shard.records[self.row])
        columns = self._columns(name)
        if columns is not None:
            return columns[name]
        settled = {"failures": 0, "last_attempt_at": self["last_crawled_at"]}
        return settled.get(name, NEVER)

    def __setitem__(self, name, value):
        columns = self._columns(name)
        if columns is None:
            columns = self.shard.attempts.open(self.shard.pages[self.row])
        columns[name] = value


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
    signals: int = 0
    failures: int = 0
    gone: bool = False
    deadline: float = NEVER
    requested_at: float = NEVER
    added_at: float = NEVER

    def tier(self, now, retry):
        if self.gone or self.deadline > now or now < self.retry_at(retry):
            return None
        if self.deadline > NEVER:
            return 1
        if self.last_crawled_at == NEVER:
            return 3
        return 2 if now - self.last_crawled_at >= self.max_age else 0

    def retry_at(self, retry):
        if not self.failures:
            return NEVER
        return self.last_attempt_at + min(retry * 2.0 ** (self.failures - 1), DAY)

    def value(self, now, uniform):
        days = (now - self.last_crawled_at) / DAY
        if uniform:
            return days
        evidence = self.kappa * self.signals
        return crawl_value_scalar(
            self.importance, self.alpha, self.kappa, self.gamma, days, evidence
        )


@dataclass
class ReferenceHost:
    rate: float
    tokens: float = 2.0
    filled_at: float = NEVER
    blocked_until: float = NEVER

    def refill(self, now):
        if self.filled_at > NEVER:
            self.tokens = min(2.0, self.tokens + (now - self.filled_at) * self.rate)
        self.filled_at = now

    def is_usable(self, now):
        self.refill(now)
        return self.rate > 0 and self.tokens >= 1.0 - 1e-6 and self.blocked_until <= now


@dataclass
class ReferenceShard:
    """Looks at every page for every slot."""

    rules: ShardRules
    pages: dict = field(default_factory=dict)
    hosts: dict = field(default_factory=dict)

    def priority(self, page, now):
        """(tier, what counts within it), or None where the page cannot be crawled."""
        tier = page.tier(now, self.rules.failed_retry)
        if tier is None:
            return None
        if tier:
            return tier, page.importance
        value = page.value(now, self.rules.picking.uniform)
        return (0, value) if value > 0 else None

    def best(self, now, weighed, least=0.0):
        """The greatest priority, at `weighed`, of a page that can be crawled now; None: none."""
        usable = {name for name, host in self.hosts.items() if host.is_usable(now)}
        priorities = [
            self.priority(page, weighed) for page in self.pages.values() if page.host in usable
        ]
        found = [p for p in priorities if p is not None and (p[0] > 0 or p[1] >= least)]
        return max(found, default=None)

    def crawl(self, page_id, now):
        page = self.pages[page_id]
        host = self.hosts[page.host]
        host.refill(now)
        host.tokens -= 1.0
        page.deadline = now + self.rules.picking.request_timeout
        page.requested_at = now

    def signal(self, page_id, time):
        page = self.pages.get(page_id)
        if page is None or time <= page.last_signal_at:
            return
        page.last_signal_at = time
        if time > page.last_crawled_at + self.rules.signal_delay:
            page.signals += 1
            page.gone = False
            if page.gamma == 0:
                page.kappa = math.log(2)
                page.gamma = 1.5 / (max(time - page.added_at, 0.0) / DAY + 0.5)

    def outcome(self, page_id, time, result):
        page = self.pages.get(page_id)
        if page is None:
            return
        if time >= page.requested_at:
            page.deadline = NEVER
        if result == FAILED:
            if time > page.last_attempt_at:
                page.last_attempt_at = time
                page.failures += 1
        elif time > page.last_crawled_at:
            page.last_crawled_at = time
            if time >= page.last_attempt_at:
                page.last_attempt_at, page.failures = time, 0
            late = page.last_signal_at > time + self.rules.signal_delay
            page.signals = int(page.signals > 0 and late)
            page.gone = result == IS_GONE


class World:
    """A shard and its reference, to which the same things happen."""

    def __init__(self, shard_rules):
        self.shard = make_shard(0, shard_rules)
        self.reference = ReferenceShard(shard_rules)
        self.identities = []

    def add_page(self, host, number, now, **fields):
        identity = url_of(host, number)
        page = ReferencePage(identity.host, max_age=self.shard.rules.default_max_age_days * DAY)
        update = PageUpdate("upsert", identity.url, importance=fields.get("importance", 1.0))
        self.shard.upsert(identity, update, now)
        row = PageView(self.shard, identity.page_id)
        page.kappa = float(row["kappa"])
        page.added_at = now
        for name, value in fields.items():
            setattr(page, name, value)
            row[name] = value
        row["due_staleness"] = np.nan
        if "alpha" in fields:
            pages, records = self.shard.pages, self.shard.records
            set_own_rate(pages[row.row], records[row.row], fields["alpha"])
        self.shard.selector.touch(np.array([row.row], np.int32), reweigh=True)
        self.reference.pages[identity.page_id] = page
        self.reference.hosts.setdefault(
            identity.host, ReferenceHost(self.shard.rules.default_host_rate)
        )
        self.identities.append(identity)
        return identity

    def remove_page(self, page_id, now):
        self.shard.remove(page_id, now)
        self.reference.pages.pop(page_id, None)
        self.identities = [i for i in self.identities if i.page_id != page_id]

    def signal(self, page_id, time):
        self.shard.signals(np.array([page_id]), np.array([time]), ["feed"])
        self.reference.signal(page_id, time)

    def outcome(self, page_id, time, result=UNCHANGED):
        self.shard.outcomes(
            Outcomes(
                np.array([page_id]),
                np.array([time]),
                np.array([result], np.int8),
                np.array([NO_REQUEST]),
                np.zeros(1, np.uint32),
            )
        )
        self.reference.outcome(page_id, time, result)

    def limit_host(self, name, rate, blocked_until, now):
        self.shard.limit_host(name, rate, blocked_until, now)
        host = self.reference.hosts[name]
        host.refill(now)
        host.rate = self.shard.rules.default_host_rate if rate is None else rate
        host.blocked_until = NEVER if blocked_until is None else blocked_until

    def pick(self, slots, rate, least=0.0):
        """Let the shard fill slots and check each against the reference; the page ids.

        Priorities are those of the first slot, host limits those of each.
        """
        picks = self.shard.selector.select(np.asarray(slots, float), rate, least)
        return [
            self._checked(pick, float(slot), float(slots[0]), least)
            for pick, slot in zip(picks, slots, strict=True)
        ]

    def _checked(self, pick, now, weighed, least):
        best = self.reference.best(now, weighed, least)
        if pick["row"] < 0:
            # Where the least value wanted is met to the last digits only, either is right.
            assert best is None or (best[0] == 0 and math.isclose(best[1], least, rel_tol=1e-9))
            return None
        page_id = self.shard.page_id_of(pick["row"])
        page = self.reference.pages[page_id]
        assert self.reference.hosts[page.host].is_usable(now)
        tier, weight = self.reference.priority(page, weighed)
        assert best is not None
        assert tier == best[0] == pick["tier"]
        assert math.isclose(weight, best[1], rel_tol=2e-6)
        assert pick["time"] == now
        self.reference.crawl(page_id, now)
        return page_id
