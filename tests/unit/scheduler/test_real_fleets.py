"""Crawler fleets as they are: slower than the budget, and silent about some pages. Time is given as
an argument, so what is measured here is exact."""

from collections import Counter, deque

import numpy as np
import pytest
from reference_shard import DAY, rules, url_of

from services.scheduler.flow.in_flight import LEAST, FleetWindow
from services.scheduler.flow.slot_filler import SlotFiller
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.crawls import Outcomes
from shared.contracts.messages import Allotment, Multipliers, PageUpdate
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.rules.page_events import UNCHANGED
from shared.runtime.clock import ManualClock
from shared.runtime.settings import load_settings

START = 1.7e9
TIMEOUT = 20.0


class Fleet:
    """Crawls one page after the other, and says nothing about some."""

    def __init__(self, crawls_per_second, silent=()):
        self.seconds = 1.0 / crawls_per_second
        self.silent = frozenset(silent)
        self.queue = deque()
        self.busy_until = START
        self.waiting = Counter()
        self.asked_twice = self.requests = self.silent_requests = 0

    def take(self, page_id, requested_at):
        self.requests += 1
        self.silent_requests += page_id in self.silent
        self.asked_twice += self.waiting[page_id] > 0
        self.waiting[page_id] += 1
        self.queue.append((page_id, requested_at))

    def crawl(self, until):
        """Page, time of the crawl and time of the request of what is answered by then."""
        answers = []
        while self.queue:
            done = max(self.busy_until, self.queue[0][1]) + self.seconds
            if done > until:
                break
            self.busy_until = done
            page_id, requested_at = self.queue.popleft()
            self.waiting[page_id] -= 1
            if page_id not in self.silent:
                answers.append((page_id, done, requested_at))
        return answers


class Copies:
    """How stale the copies of pages are that change, each, at a rate that is known."""

    def __init__(self, page_ids, changes_per_second):
        self.crawled_at = dict.fromkeys(page_ids, START)
        self.rate = changes_per_second
        self.stale_seconds = 0.0

    def crawl(self, page_id, time):
        interval = time - self.crawled_at[page_id]
        self.stale_seconds += interval + np.expm1(-self.rate * interval) / self.rate
        self.crawled_at[page_id] = time

    def staleness(self, end):
        for page_id in self.crawled_at:
            self.crawl(page_id, end)
        return self.stale_seconds / len(self.crawled_at) / (end - START)


class System:
    """Shards that fill the slots of a budget, and the fleet that crawls for them."""

    def __init__(self, fleet, pages, changes_per_second, shards=4, timeout=TIMEOUT):
        self.fleet, self.now, self.count = fleet, START, 0
        self.shards = {
            n: make_shard(n, rules(timeout=timeout, host_rate=1e3)) for n in range(shards)
        }
        self.shard_of = {}
        self.answered_at = []
        self.detour_seconds = 0.0
        """Crawlers know only of the shards of before, of which each was split in two: an answer to
        one of odd number comes to the one before it, and is passed on after so long."""
        self._passed_on = []
        for number, page in enumerate(pages):
            shard = self.shards[number % shards]
            shard.is_caught_up = True
            shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=START), START - DAY)
            self.shard_of[page.page_id] = shard
        for shard in self.shards.values():
            ids = np.array(
                [p.page_id for p in pages if self.shard_of[p.page_id] is shard], np.int64
            )
            shard.parameters(
                ids, *np.outer([changes_per_second * DAY, 0.0, 0.0], np.ones(ids.size))
            )
        settings = load_settings(request_timeout_seconds=timeout)
        self.filler = SlotFiller(settings, ManualClock(START), self.shards)

    def run(self, rate, seconds, copies=None):
        shares = [Allotment(number, 1 / len(self.shards)) for number in self.shards]
        plan = Multipliers(1, self.now, self.now, 1e-9, rate, 0.0, shares)
        slots = SlotTimeline([SlotPlan.from_message(plan)])
        end = self.now + seconds
        while self.now < end:
            before, self.now = self.now, min(self.now + 1.0, end)
            times, owners = slots.between(before, self.now)
            for emission in self.filler.fill(times, owners, slots.newest):
                page_ids = emission.shard.page_ids_of(emission.picks["row"])
                for page_id, time in zip(page_ids.tolist(), emission.picks["time"], strict=True):
                    self.fleet.take(page_id, time)
            self._answer(self.fleet.crawl(self.now), copies)

    def _by_detour(self, answers):
        """What comes to those who have asked by now."""
        at_once = []
        for answer in answers:
            number = self.shard_of[answer[0]].number
            if self.detour_seconds and number % 2:
                self.shards[number - 1].notes.answered_elsewhere += 1
                self._passed_on.append((self.now + self.detour_seconds, answer))
            else:
                at_once.append(answer)
        arrived = [answer for at, answer in self._passed_on if at <= self.now]
        self._passed_on = [(at, answer) for at, answer in self._passed_on if at > self.now]
        return [*arrived, *at_once]

    def _answer(self, answers, copies):
        answers = self._by_detour(answers)
        for shard in self.shards.values():
            mine = [answer for answer in answers if self.shard_of[answer[0]] is shard]
            page_ids, times, requested_at = (
                (np.array(part) for part in zip(*mine, strict=True)) if mine else ([], [], [])
            )
            shard.outcomes(
                Outcomes(
                    np.asarray(page_ids, np.int64),
                    np.asarray(times, np.float64),
                    np.full(len(mine), UNCHANGED, np.int8),
                    np.floor(np.asarray(requested_at, np.float64) * 1e6 + 0.5).astype(np.int64),
                    np.zeros(len(mine), np.uint32),
                )
            )
        for page_id, time, _ in answers:
            self.answered_at.append(time)
            if copies is not None:
                copies.crawl(page_id, time)


def pages_of(count):
    return [url_of(f"h{number % 50}", number) for number in range(count)]


def staleness_of_others(pages, silent, rate, changes, seconds, timeout):
    fleet = Fleet(50 * rate, silent)
    system = System(fleet, pages, changes, timeout=timeout)
    others = Copies([p.page_id for p in pages if p.page_id not in fleet.silent], changes)
    system.run(rate, seconds, others)
    return others.staleness(system.now), fleet.silent_requests / fleet.requests


@pytest.mark.slow(2)
@pytest.mark.long
def test_pages_that_nobody_answers_cost_the_others_next_to_nothing():
    """Two thousand pages at thirty crawls a second; the crawlers drop each tenth without a word."""
    pages = pages_of(2000)
    silent = [page.page_id for page in pages[::10]]
    answering = [page for page in pages if page.page_id not in set(silent)]
    stale, share = staleness_of_others(pages, silent, 30.0, 1 / 100, 1500.0, TIMEOUT)
    without, _ = staleness_of_others(answering, [], 30.0, 1 / 100, 1500.0, TIMEOUT)
    assert share <= 0.02
    assert stale <= 1.03 * without


@pytest.mark.slow(0.5)
@pytest.mark.parametrize("shards", [1, 8])
def test_a_fleet_at_half_the_budget_does_all_that_it_can_and_nothing_twice(shards):
    fleet = Fleet(20.0)
    system = System(fleet, pages_of(3000), 1 / 1000, shards=shards, timeout=60.0)
    system.run(40.0, 600.0)
    assert fleet.asked_twice == 0
    times = np.array(system.answered_at)
    assert (times > START + 60.0).sum() == pytest.approx(20.0 * 540.0, rel=2e-3)
    assert len(fleet.queue) <= 20.0 * 60.0 / 2 + LEAST


@pytest.mark.slow(0.5)
def test_a_fleet_that_loses_half_of_its_crawlers_is_asked_for_half():
    fleet = Fleet(40.0)
    system = System(fleet, pages_of(3000), 1 / 1000, timeout=60.0)
    system.run(40.0, 120.0)
    fleet.seconds *= 2.0
    system.run(40.0, 600.0)
    assert fleet.asked_twice == 0
    fleet.seconds /= 4.0
    before = len(system.answered_at)
    system.run(40.0, 120.0)
    assert len(system.answered_at) - before >= 0.99 * 40.0 * 120.0


@pytest.mark.slow(0.5)
def test_a_fleet_that_is_away_costs_few_requests_and_is_found_again():
    fleet = Fleet(1e3)
    system = System(fleet, pages_of(3000), 1 / 1000, timeout=60.0)
    system.run(40.0, 120.0)
    asked, fleet.busy_until = fleet.requests, system.now + 1200.0
    system.run(40.0, 1200.0)
    assert fleet.requests - asked < 0.05 * 40.0 * 1200.0
    system.run(40.0, 70.0)  # what is on its way is answered, or late
    before = len(system.answered_at)
    system.run(40.0, 60.0)
    assert len(system.answered_at) - before >= 0.99 * 40.0 * 60.0


def test_answers_that_are_passed_on_after_a_split_are_no_sign_of_a_slow_fleet():
    system = System(Fleet(1e3), pages_of(3000), 1 / 1000, timeout=TIMEOUT)
    system.run(40.0, 60.0)
    for seconds in (10.0, 0.0):
        system.detour_seconds = seconds
        system.run(40.0, 60.0)
    assert sum(shard.notes.held_slots for shard in system.shards.values()) == 0


@pytest.mark.slow(0.5)
def test_a_fleet_at_half_the_budget_is_found_out_whatever_is_passed_on():
    fleet = Fleet(20.0)
    system = System(fleet, pages_of(3000), 1 / 1000, timeout=60.0)
    system.detour_seconds = 2.0
    system.run(40.0, 600.0)
    assert fleet.asked_twice == 0
    assert len(fleet.queue) <= 20.0 * 60.0


def test_slots_that_wait_for_the_fleet_are_counted_and_reported():
    system = System(Fleet(10.0), pages_of(3000), 1 / 1000, shards=1, timeout=60.0)
    system.run(40.0, 120.0)
    system.shards[0].notes.take_fleet_notes()
    system.run(40.0, 100.0)
    answered, held, _ = system.shards[0].notes.take_fleet_notes()
    assert answered == pytest.approx(1000, rel=0.02)
    assert held == pytest.approx(3000, rel=0.02)


def test_a_window_is_counted_only_where_that_may_matter():
    counted = []
    window = FleetWindow(100.0, lambda now: counted.append(now) or 0)
    now = START
    for _ in range(100):
        now += 0.1
        assert window.room(now, 10, 100.0) > 100
        window.asked(10)
    assert counted == []
    # The answers stop: what waits is counted, but not each time.
    for _ in range(100):
        now += 0.1
        window.asked(min(window.room(now, 0, 100.0), 10))
    assert 1 <= len(counted) <= 3
