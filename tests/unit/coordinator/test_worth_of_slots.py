"""What λ₀ is worth where slots stay empty: as no page reaches it, or as nobody can fill them."""

import math

import pytest
from coordination_run import Run, report

from services.coordinator.core import Coordination


class Shards(Run):
    """Shards of which each fills so many slots at most, and has pages for so many crawls."""

    def __init__(self, *, work_conserving=True):
        super().__init__()
        self.core = Coordination(5.0, 0.3, work_conserving=work_conserving)
        self.core.lead(1, "coordinator-1")
        self.work_conserving = work_conserving
        self.able = {}
        """Slots per second that a shard can fill; absent: all."""
        self.pages = {}
        """Crawls per second that there are pages for, whatever they are worth; absent: any."""
        self.wave = 0.0
        """How much more, or less, than demand says reaches λ₀ at times, as a part of it."""
        self.empty = set()

    def report(self, shard, scale, since):
        if shard in self.empty:
            return report(shard, 0.0, self.moment.clock, pages=0)
        seconds = self.moment.clock - since
        rate = self.core.timeline.allotted(shard, since, self.moment.clock) / seconds
        filled = min(rate, self.able.get(shard, rate))
        crawls = min(filled, self.pages.get(shard, filled))
        plan = self.core.timeline.at(since)
        if not self.work_conserving and plan is not None and plan.multiplier > 0:
            wave = 1.0 + self.wave * math.sin(2.0 * math.pi * self.wall / 60.0)
            crawls = min(filled, wave * scale / plan.multiplier**0.5)
        return report(
            shard,
            scale,
            self.moment.clock,
            achieved_crawls_per_second=crawls,
            unused_crawls_per_second=filled - crawls,
        )

    def multipliers(self, seconds):
        """λ₀ after each of so many seconds."""
        found = []
        for _ in range(seconds):
            self.step()
            found.append(self.core.last.multiplier)
        return found


def settled(shards=4, rate=400.0, **options):
    run = Shards(**options)
    run.reporting = dict.fromkeys(range(shards), 100.0)
    run.set_bandwidth(rate)
    run.multipliers(10)
    return run


@pytest.mark.parametrize("wave", [0.05, 0.3])
def test_slots_that_no_page_is_worth_do_not_make_the_next_ones_cheaper(wave):
    """Where they are left empty on purpose, they are no sign of what a shard can do."""
    run = settled(work_conserving=False)
    run.wave = wave
    found = run.multipliers(300)
    assert found == pytest.approx([1.0] * 300, rel=0.02)
    assert not any(message.cause == "shortfall" for message in run.published)


@pytest.mark.parametrize(("shards", "part"), [(4, 0.5), (4, 0.9), (4, 0.98), (1, 0.9), (32, 0.9)])
@pytest.mark.parametrize("work_conserving", [True, False])
def test_slots_that_nobody_can_fill_do_not_make_the_others_cheaper(shards, part, work_conserving):
    """All schedulers are slow: λ₀ is that of what they make."""
    run = settled(shards, 100.0 * shards, work_conserving=work_conserving)
    run.able = dict.fromkeys(range(shards), 100.0 * part)
    run.multipliers(60)
    found = run.multipliers(140)
    assert min(found) > 0.99
    assert max(found) < 1.06 / part**2
    assert found[-1] == pytest.approx(part**-2, rel=0.06)


def test_shards_without_pages_do_not_count_among_those_that_can_do_more():
    run = settled()
    run.able = dict.fromkeys(range(4), 90.0)
    run.reporting[4] = 100.0
    run.empty = {4}
    assert run.multipliers(100)[-1] == pytest.approx((10 / 9) ** 2, rel=0.06)


def test_a_slow_shard_that_leaves_slots_to_nobody_makes_none_dearer_by_and_by():
    """Not all slots that it could fill are worth it: what is left empty is no less that it can."""
    run = settled(work_conserving=False)
    run.able, run.wave = dict.fromkeys(range(4), 90.0), 0.3
    found = run.multipliers(500)
    assert max(found[60:]) < 1.06 / 0.9**2
    assert min(found[60:]) > 0.99


def test_where_there_are_no_more_pages_slots_are_worth_nothing():
    run = settled()
    run.pages = dict.fromkeys(range(4), 60.0)
    assert run.multipliers(60)[-30:] == [0.0] * 30
