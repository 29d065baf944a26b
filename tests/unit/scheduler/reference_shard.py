"""The scheduler's rules once more, page by page in plain Python: the oracle of the tests."""

import math
from dataclasses import dataclass, field

import numpy as np
from reference_groups import ReferenceGroup, default_shares_of
from reference_pages import DAY, NEVER, ReferenceBatch, ReferenceHost, ReferencePage

from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.crawls import Outcomes
from services.scheduler.state.packing import set_own_rate, updated_at
from services.scheduler.state.rows import PAGE
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.identity import identify
from shared.contracts.messages import HostLimit, PageUpdate
from shared.contracts.request_ids import NO_REQUEST
from shared.pacing.groups import NO_LIMITS
from shared.rules.host_objectives import HostObjectives
from shared.rules.page_events import CHANGED, FAILED, GONE_FOR_GOOD, IS_GONE, UNCHANGED


def rules(
    *,
    timeout=120.0,
    speed=1.0,
    uniform=False,
    delay=0.0,
    retry=300.0,
    max_age_days=math.inf,
    host_rate=1.0,
    least_interval=0.0,
    least_value=0.0,
    objectives=None,
):
    told = HostObjectives(objectives or {})
    floor = least_interval, least_value
    picking = PickingRules(timeout, speed, uniform, *floor, objectives=told)
    return ShardRules(picking, delay, max(retry, least_interval), max_age_days, host_rate)


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
        settled = {"failures": 0, "misses": 0, "last_attempt_at": self["last_crawled_at"]}
        return settled.get(name, NEVER)

    def __setitem__(self, name, value):
        columns = self._columns(name)
        if columns is None:
            columns = self.shard.attempts.open(self.shard.pages[self.row])
        columns[name] = value


@dataclass
class ReferenceShard:
    """Looks at every page for every slot."""

    rules: ShardRules
    pages: dict = field(default_factory=dict)
    hosts: dict = field(default_factory=dict)
    batches: dict = field(default_factory=dict)
    """The last one of each host."""
    open: dict = field(default_factory=dict)
    """Page id → host and time-out of its request, while it is on its way."""
    groups: dict = field(default_factory=dict)
    """By name: those that have limits of their own."""
    others: dict = field(default_factory=dict)
    """By name: those that go by the default limit."""
    named: dict = field(default_factory=dict)
    """Host → the group that outcomes name."""

    def is_usable(self, name, now):
        """Whether a host can be crawled now."""
        host = self.hosts[name]
        if any(group.usable_slot(now) is None for group in self.groups_for(name)):
            return False
        count = sum(of == name for of, _ in self.open.values())
        return host.is_usable(now) and (not host.most_open or count < host.most_open)

    def groups_for(self, name):
        """The groups that bind a host."""
        below = {g for g in self.groups if name == g or name.endswith("." + g)}
        nearest = max(below, key=len, default=None)
        limits = self.others | self.groups
        return [limits[g] for g in {nearest, self.named.get(name)} if g in limits]

    def time_out(self, now):
        """What has waited until now for an answer is not on its way any more."""
        self.open = {page: (of, until) for page, (of, until) in self.open.items() if until > now}

    def priority(self, page, now):
        """(tier, what counts within it), or None where the page cannot be crawled."""
        picking = self.rules.picking
        tier = page.tier(now, self.rules.failed_retry)
        if tier is None or now < page.last_crawled_at + picking.least_interval:
            return None
        objective = picking.objectives.of(page.host)
        value = page.value(now, picking.uniform, objective) if tier < 3 else math.inf
        if tier and value >= picking.least_value:
            return tier, page.importance if tier == 3 else now - page.last_crawled_at - page.max_age
        return (0, value) if value > 0 else None

    def best(self, now, weighed, least=0.0):
        """The greatest priority, at `weighed`, of a page that can be crawled now; None: none."""
        usable = {name for name in self.hosts if self.is_usable(name, now)}
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
        for group in self.groups_for(page.host):
            group.crawl(now)
        page.unanswered += page.deadline > NEVER
        page.deadline = now + self.rules.picking.request_timeout
        page.requested_at = now
        self.open[page_id] = page.host, page.deadline

    def signal(self, page_id, time):
        page = self.pages.get(page_id)
        if page is None or time <= page.last_signal_at:
            return
        page.last_signal_at = time
        if time > page.last_attempt_at:
            page.gone = False
        if time > page.last_crawled_at + self.rules.signal_delay:
            if page.gamma == 0:
                page.kappa = math.log(2)
                page.gamma = 1.5 / (max(time - page.added_at, 0.0) / DAY + 0.5)
            self.join_batch(page, time)

    def join_batch(self, page, time):
        """A signal counts, in the batch that it is of."""
        batch = self.batches.get(page.host)
        if batch is None or abs(time - batch.last_at) >= 180.0:
            batch = self.batches[page.host] = ReferenceBatch(time)
        batch.last_at = max(batch.last_at, time)
        if page.batch is not batch:
            page.batch, page.in_batch, page.earlier = batch, 0, page.signals
        page.in_batch += 1
        page.heard += 1
        batch.value(page)

    def leave_batch(self, page, time, result, late):
        """A page was crawled: its signals are over, and others may be worth more or less."""
        batch = page.batch
        page.batch = None
        if batch is None or late or page.last_crawled_at == NEVER or result == IS_GONE:
            return
        batch.learn(page, (time - page.last_crawled_at) / DAY, result == CHANGED)
        if abs(batch.odds - batch.told) > 0.05:
            batch.told = batch.odds
            for other in self.pages.values():
                if other.batch is batch:
                    batch.value(other)

    def outcome(self, page_id, time, result):
        page = self.pages.get(page_id)
        if page is None:
            self.open.pop(page_id, None)
            return
        if time >= page.requested_at and page.deadline > NEVER:
            page.deadline, page.unanswered = NEVER, 0
            self.open.pop(page_id, None)
        elif time > max(page.last_attempt_at, page.last_crawled_at):
            page.unanswered = 0
        if result in (FAILED, IS_GONE) or result >= GONE_FOR_GOOD:
            if time > page.last_attempt_at:
                page.last_attempt_at = time
                page.failures += 1
                page.misses += result != FAILED
                page.misses = max(page.misses, 3) if result >= GONE_FOR_GOOD else page.misses
                if result != FAILED and page.misses >= 3:
                    page.failures = page.misses
                page.gone = page.misses >= 3 and page.last_signal_at <= time
        elif time > page.last_crawled_at:
            late = page.last_signal_at > time + self.rules.signal_delay
            late = page.signals > 0 and late
            self.leave_batch(page, time, result, late)
            page.last_crawled_at = time
            if time >= page.last_attempt_at:
                page.last_attempt_at, page.failures, page.misses, page.gone = time, 0, 0, False
            page.signals = page.heard = int(late)


class World:
    """A shard and its reference, to which the same things happen."""

    def __init__(self, shard_rules, number=0):
        self.shard = make_shard(number, shard_rules)
        self.reference = ReferenceShard(shard_rules)
        self.identities = []
        self.limits = NO_LIMITS

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
        page.heard = page.signals
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
        host.note_change(now)
        host.rate = self.shard.rules.default_host_rate if rate is None else rate
        host.blocked_until = NEVER if blocked_until is None else blocked_until

    def bound_open(self, name, most, now):
        """At most so many requests of a host at once; None: any number."""
        self.shard.take_host_limit(HostLimit(name, max_open_requests=most, only="open"), now)
        reference, host = self.reference, self.reference.hosts[name]
        if not host.most_open:
            # Before, nobody counted, and pages that went meanwhile are not found.
            gone = reference.open.keys() - reference.pages.keys()
            for page_id in gone & {p for p, (of, _) in reference.open.items() if of == name}:
                del reference.open[page_id]
        host.note_change(now)
        host.most_open = most or 0

    def name_group(self, name, group):
        """Outcomes say that a host is of a group, from the next pick on."""
        number, before = self.shard.hosts.find(name), self.reference.named.get(name)
        self.shard.groups.name(number, group)
        if group is None:
            self.reference.named.pop(name, None)
        else:
            self.reference.named[name] = group
        if group != before:
            for of in self.reference.groups_for(name):
                of.close(float(self.shard.host_rows[number]["filled_at"]))

    def limit_groups(self, *groups):
        """These groups have limits from the next pick on; all others have none."""
        self.limits = self.limits._replace(groups=groups)
        known = self.reference.groups
        self.reference.groups = {
            g.group: known.get(g.group) or ReferenceGroup(g, self.shard.number) for g in groups
        }
        for group in groups:
            self.reference.groups[group.group].follow(group)
        for name in self.reference.named:
            at = float(self.shard.host_rows[self.shard.hosts.find(name)]["filled_at"])
            for of in self.reference.groups_for(name):
                of.close(at)

    def limit_others(self, default):
        """All other groups that outcomes name have this limit from the next pick on."""
        self.limits = self.limits._replace(default=default)

    def _follow_others(self, now):
        """Of groups that are named for the first time the slot that has begun is nobody's."""
        known, default = self.reference.others, self.limits.default
        for name in set(self.reference.named.values()) if default is not None else ():
            shares = default_shares_of(name, default)
            if name not in known:
                known[name] = ReferenceGroup(shares, self.shard.number)
                known[name].close(now)
            known[name].follow(shares)
            known[name].keep(now, self.rate)

    def pick(self, slots, rate, least=0.0):
        """Let the shard fill slots and check each against the reference; the page ids.

        Priorities are those of the first slot, host limits those of each.
        """
        self.rate = rate
        self.shard.groups.follow(self.limits, rate, float(slots[0]))
        self._follow_others(float(slots[0]))
        for group in self.reference.groups.values():
            group.keep(float(slots[0]), rate)
        picks = self.shard.select(np.asarray(slots, float), rate, least)
        self.reference.time_out(float(slots[0]))
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
        page_id = int(self.shard.lookup.ids[pick["row"]])
        page = self.reference.pages[page_id]
        assert self.reference.is_usable(page.host, now)
        tier, weight = self.reference.priority(page, weighed)
        assert best is not None
        assert tier == best[0]
        label = 1 if tier == 0 and page.failed else tier
        assert label == pick["tier"]
        assert math.isclose(weight, best[1], rel_tol=2e-6, abs_tol=1e-3 if tier == 2 else 0.0)
        assert pick["time"] == now
        self.reference.crawl(page_id, now)
        return page_id
