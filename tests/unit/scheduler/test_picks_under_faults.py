"""Picks while things go wrong: where a shard counts none as uncertain, each is what a look at every
page would pick. From outside this cannot be seen without taking part in the picking."""

import math

import numpy as np
import pytest
from examples import some
from reference_shard import DAY, NEVER, ReferenceHost, World, rules
from test_shard_selection import START, something_happens

from services.scheduler.flow.loading import build_shard
from services.scheduler.flow.recovery import restore
from shared.contracts.identity import host_id_of
from shared.contracts.layout import ALONE
from shared.contracts.messages import CrawlRequest
from shared.contracts.request_ids import microseconds, request_id_of
from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE, INITIAL_SHAPE
from shared.policy.estimation.quiet_pages import QuietPages
from shared.rules.page_events import UNCHANGED
from shared.store.columns import (
    HostColumns,
    PageColumns,
    SignalsBySource,
    UnansweredPages,
    host_rules,
)
from shared.store.history import SOURCES
from shared.store.host_factors import HostFactors
from shared.store.hosts import HostLearning
from shared.store.page_parts import PlacedUrls
from shared.store.page_status import ACTIVE, GONE
from shared.store.snapshot import ShardSnapshot

LOOKED_BACK = 10.0
"""Beyond the time-out of requests, seconds."""

UNWRITTEN = 5.0
"""What was not answered in time may be unknown to the database for so many seconds: fewer."""

WRITTEN_SECONDS = 3.0
"""Of requests that were made within so long the later ones may be written first."""


class HarmedWorld(World):
    """A shard that is restarted, loses what it picked, and stands still."""

    def __init__(self, shard_rules):
        super().__init__(shard_rules)
        self.sent = []
        self.unanswered = {}
        """Page id → what the database knows of the last of its requests that nobody answered."""
        self.compared = self.uncertain = 0

    def pick(self, slots, rate, least=0.0):
        """As in `World`, but only what is not counted as uncertain is compared."""
        selector = self.shard.selector
        before = selector.uncertain_picks
        self._write_unanswered(float(slots[0]) - UNWRITTEN * self.shard.rules.picking.speed)
        picks = self.shard.select(np.asarray(slots, float), rate, least)
        is_sure = selector.uncertain_picks == before
        found = []
        for pick, slot in zip(picks, slots, strict=True):
            if is_sure:
                self.compared += 1
                found.append(self._checked(pick, float(slot), float(slots[0]), least))
            elif pick["row"] >= 0:
                self.uncertain += 1
                found.append(int(self.shard.lookup.ids[pick["row"]]))
                self.reference.crawl(found[-1], float(slot))
        picked = zip(found, slots, strict=False)
        self.sent += [(page, float(slot)) for page, slot in picked if page is not None]
        return found

    def take_back(self, picked):
        """The group moves shards before the last requests are sent."""
        taken = [page_id for page_id in picked if page_id in self.reference.pages]
        self.shard.take_back(self.shard.rows_of(np.array(taken, np.int64)).astype(np.int64))
        for page_id in taken:
            self.reference.pages[page_id].deadline = NEVER
        self.sent = self.sent[: len(self.sent) - sum(page is not None for page in picked)]

    def restart(self, now):
        """The shard is loaded anew: from what Postgres has, and the topic of requests."""
        timeout = self.shard.rules.picking.request_timeout
        speed = self.shard.rules.picking.speed
        recent = [(p, at) for p, at in self.sent if at > now - timeout - LOOKED_BACK * speed]
        self._write_unanswered(now - UNWRITTEN * speed)
        self.shard = build_shard(self._snapshot(), self.shard.rules)
        urls = {identity.page_id: identity for identity in self.identities}
        recent = [(page, at) for page, at in recent if page in urls]
        restore(
            self.shard,
            [
                CrawlRequest(
                    *(request_id_of(0, page, microseconds(at)), page, urls[page].url),
                    *(urls[page].host, at, at + timeout, 1.0, 1.0, "value"),
                )
                for page, at in recent
            ],
        )
        self._restart_reference(recent, timeout)

    def _write_unanswered(self, until):
        while news := self.shard.unanswered.news(until):
            for page_id in news.answered.tolist():
                self.unanswered.pop(page_id, None)
            columns = (column.tolist() for column in news.pages.columns)
            self.unanswered |= {row[0]: row for row in zip(*columns, strict=True)}
            self.shard.unanswered.told()

    def _restart_reference(self, recent, timeout):
        pages = self.reference.pages
        self.reference.batches = {}  # what was known of them is gone
        speed = self.shard.rules.picking.speed
        since = min((at for _, at in recent), default=math.inf) + WRITTEN_SECONDS * speed
        for page_id, page in pages.items():
            if page.unanswered and page.deadline == NEVER:
                # The last request was taken back, and is not heard of any more.
                _, requests, page.requested_at, page.deadline, _ = self.unanswered[page_id]
                page.unanswered = requests - 1
            page.signals, page.batch = page.heard, None
        for name, host in self.reference.hosts.items():
            last = max(
                (
                    max(p.last_crawled_at, p.last_attempt_at)
                    for p in pages.values()
                    if p.host == name
                ),
                default=NEVER,
            )
            tokens = 0.0 if last > NEVER else 2.0
            is_of_known = any(pages[p].host == name and since <= at <= last for p, at in recent)
            begin = since if is_of_known else last
            self.reference.hosts[name] = ReferenceHost(host.rate, tokens, begin, host.blocked_until)
        known = set()
        for page_id, at in recent:
            host = self.reference.hosts[pages[page_id].host]
            if at > host.filled_at:
                host.refill(at)
            if pages[page_id].host not in known:
                # What was asked for before all is known may have left none.
                host.tokens = min(host.tokens, max((at - since) * host.rate, 1.0))
                known.add(pages[page_id].host)
            host.tokens = max(host.tokens - 1.0, 0.0)

    def _snapshot(self):
        pages = sorted(self.reference.pages.items())
        urls = {identity.page_id: identity.url.encode() for identity in self.identities}
        hosts = sorted(self.reference.hosts, key=host_id_of)
        default = self.shard.rules.default_host_rate

        def column(value, kind=np.float64):
            return np.array([value(page_id, page) for page_id, page in pages], kind)

        limits = [self.reference.hosts[name].rate for name in hosts]
        count = len(hosts)
        rules_of_hosts = host_rules(count)
        rules_of_hosts["max_crawls_per_second"] = [
            np.nan if rate == default else rate for rate in limits
        ]
        rules_of_hosts["blocked_until"] = [self.reference.hosts[n].blocked_until for n in hosts]
        return ShardSnapshot(
            shard=0,
            pages=PageColumns(
                page_ids=column(lambda page_id, _: page_id, np.int64),
                host_ids=column(lambda _, page: host_id_of(page.host), np.int64),
                importance=column(lambda _, page: page.importance),
                max_age_days=np.full(len(pages), np.inf),
                unsignalled_change_rate=column(lambda _, page: page.alpha),
                signal_evidence=column(lambda _, page: page.kappa),
                signal_rate=column(lambda _, page: page.gamma),
                last_crawled_at=column(lambda _, page: page.last_crawled_at),
                last_attempt_at=column(
                    lambda _, page: max(page.last_crawled_at, page.last_attempt_at)
                ),
                last_changed_at=np.full(len(pages), NEVER),
                last_signal_at=column(lambda _, page: page.last_signal_at),
                updated_at=column(lambda _, page: page.added_at),
                urgent_at=np.full(len(pages), NEVER),
                failures=column(lambda _, page: page.failures, np.int32),
                misses=column(lambda _, page: page.misses, np.int16),
                digest=np.zeros(len(pages), np.int64),
                status=column(lambda _, page: GONE if page.gone else ACTIVE, np.int16),
                signal_count=np.zeros(len(pages), np.int64),
                page_class=np.zeros(len(pages), np.int16),
            ),
            pending=column(lambda _, page: [page.heard, *[0] * (SOURCES - 1)], np.uint16),
            multipliers=np.ones(len(pages), np.float32),
            urls=PlacedUrls.of([urls[page_id] for page_id, _ in pages]),
            hosts=HostColumns(
                np.array([host_id_of(name) for name in hosts], np.int64),
                hosts,
                rules_of_hosts,
                np.full(count, NEVER),
                np.full(count, INITIAL_SHAPE),
                np.full(count, INITIAL_SHAPE / INITIAL_CHANGE_RATE),
                [[] for _ in hosts],
                HostLearning.initial(count),
                [HostFactors.none() for _ in hosts],
                QuietPages.initial(count),
            ),
            positions={},
            last_sources=np.zeros(len(pages), np.int8),
            by_source=SignalsBySource.none(),
            layout=ALONE,
            unanswered=self._unanswered_pages(),
        )

    def _unanswered_pages(self):
        none = UnansweredPages.none()
        columns = zip(*self.unanswered.values(), strict=True) if self.unanswered else none.columns
        kinds = (column.dtype for column in none.columns)
        return UnansweredPages(*map(np.array, columns, kinds))


def harmed_world(rng, pages=250, hosts=10, **settings):
    world = HarmedWorld(rules(**settings))
    for number in range(pages):
        signalled = rng.random() < 0.3
        world.add_page(
            f"h{rng.integers(hosts)}",
            number,
            START - 100 * DAY,
            importance=float(np.float32(rng.lognormal(0, 1))),
            alpha=float(np.float32(rng.lognormal(-2, 1))),
            gamma=float(np.float32(rng.lognormal(-1, 1))) if signalled else 0.0,
            kappa=float(np.float32(rng.lognormal(-0.5, 1))) if signalled else math.log(2),
            last_crawled_at=START - float(rng.exponential(10)) * DAY,
            signals=int(rng.poisson(0.5)) if signalled else 0,
        )
    return world


def something_breaks(rng, world, now, picked):
    """A fault, or none; when the next tick comes."""
    speed = world.shard.rules.picking.speed
    luck = rng.random()
    if luck < 0.2:
        world.restart(now)
    elif luck < 0.4:
        world.take_back(picked)
    elif luck < 0.6:
        return now + float(rng.uniform(1.0, 90.0)) * speed  # it stood still
    elif luck < 0.8:
        for page_id in rng.choice(list(world.reference.pages), 10):
            world.outcome(int(page_id), now - float(rng.exponential(5.0)) * speed, UNCHANGED)
    return now


@pytest.mark.parametrize("seed", some(range(10), 4))
def test_whatever_breaks_sure_picks_are_the_most_urgent(seed):
    rng = np.random.default_rng([seed, 1])
    settings = {"timeout": 30.0, "retry": 20.0, "host_rate": float(rng.choice([0.5, 2.0, 50.0]))}
    settings["max_age_days"] = float(rng.choice([math.inf, 25.0]))
    world = harmed_world(rng, **settings)
    rate, now = float(rng.choice([2.0, 20.0, 100.0])), START
    for _ in range(30):
        slots = now + np.sort(rng.random(rng.integers(1, 8))) / rate
        now = float(slots[-1]) + 1e-6
        picked = world.pick(slots, rate)
        now = something_breaks(rng, world, now, picked)
        something_happens(rng, world, now, [])
    assert world.compared > 60
    assert world.uncertain < world.compared


def test_a_pick_that_a_restart_made_second_best_is_found():
    rng = np.random.default_rng(3)
    world = harmed_world(rng, host_rate=50.0)
    world.restart(START)
    forgotten = world.reference.pages[world.identities[0].page_id]
    forgotten.signals, forgotten.kappa, forgotten.gamma = 9, 3.0, 0.1  # Postgres had it, memory not
    forgotten.importance = 1e6

    with pytest.raises(AssertionError):
        world.pick(START + np.array([0.1, 0.2]), 10.0)
