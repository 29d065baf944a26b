"""The coordinator shares the limit of a group of hosts between the shards that have some."""

import pytest
from coordination_run import Run, report

from shared.contracts.codec import BadMessage, encode
from shared.contracts.fields import MOST_GROUPS
from shared.contracts.messages import (
    Allotment,
    GroupLimit,
    GroupShares,
    Multipliers,
)
from shared.contracts.reported import GroupPages
from shared.pacing.groups import most_groups, passed

SHOP = "shop.example"


class GroupRun(Run):
    """Shards that have so many pages of the group."""

    def __init__(self, pages, **options):
        super().__init__(**options)
        self.pages = pages
        self.reporting = dict.fromkeys(pages, 1.0)
        self.set_bandwidth(10.0)

    def report(self, shard, scale, since):
        known = self.core.timeline.newest
        names = {shares.group for shares in known.limits.groups} if known else set()
        count = self.pages[shard]
        groups = [GroupPages(SHOP, count)] if count and SHOP in names else []
        return report(shard, scale, self.moment.clock, groups=groups)

    def limit(self, rate, name=SHOP):
        return self.core.groups.receive(GroupLimit(name, rate))

    def steps(self, count):
        return [m for m in (self.step() for _ in range(count)) if m is not None]

    @property
    def group(self):
        return {shares.group: shares for shares in self.core.timeline.newest.limits.groups}.get(
            SHOP
        )

    @property
    def parts(self):
        return {a.shard: a.share for a in self.group.allotments}


def running(pages, rate=2.0):
    run = GroupRun(pages)
    run.steps(2)
    run.limit(rate)
    run.steps(3)
    return run


def test_a_limit_is_first_nobodys_and_then_of_those_who_have_pages():
    run = GroupRun({0: 10, 1: 30, 2: 0})
    run.steps(2)
    assert run.limit(2.0)
    message = run.step()
    assert message.cause == "groups"
    assert "the hosts of shop.example take at most 2 crawls/s together" in message.why
    assert run.parts == {}
    run.step()
    assert run.parts == pytest.approx({0: 0.25 + 0.125, 1: 0.25 + 0.375})
    assert not run.limit(2.0)


def test_what_stays_as_it_is_is_said_again_word_for_word():
    run = running({0: 10, 1: 30})
    before = run.group
    assert len(run.steps(20)) >= 3
    assert run.group is before or run.group == before


def test_a_shard_for_which_nothing_is_left_yet_changes_nothing():
    """A leader that has just begun has not heard of those that have the whole limit."""
    run = running({0: 10, 1: 30})
    other = GroupRun({0: 10, 1: 30, 2: 5})
    other.wall, other.reporting = run.wall, {2: 1.0}
    other.core.follow()
    other.core.receive_multipliers(run.published[-1], other.moment)
    other.core.lead(2, "coordinator-2")
    other.limit(2.0)
    other.steps(3)
    assert other.group == run.group
    other.reporting = {0: 1.0, 1: 1.0, 2: 1.0}
    other.steps(3)
    assert other.parts[2] > 0.1


def test_another_limit_goes_on_from_the_slots_that_have_passed():
    run = running({0: 10})
    before = run.group
    run.limit(0.5)
    run.steps(2)
    assert run.group.crawls_per_second == 0.5
    assert run.group.since > before.since
    assert run.group.first_slot == pytest.approx(passed(before, run.group.since))
    run.limit(None)
    message = run.step()
    assert run.group is None
    assert "shop.example has no limit any more" in message.why


def test_a_shard_that_has_none_yet_gets_a_share_at_once_and_a_silent_one_loses_it():
    run = running({0: 10, 1: 10, 2: 0})
    assert run.parts == pytest.approx({0: 0.5, 1: 0.5})
    run.pages[2] = 10
    run.steps(2)
    assert run.parts == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3}, abs=1e-5)
    del run.reporting[1]
    run.steps(8)
    assert run.parts == pytest.approx({0: 0.5, 2: 0.5})


def test_shares_that_drift_are_changed_seldom_and_by_much_only():
    run = running({0: 10, 1: 10}, rate=100.0)
    before = run.group
    run.pages = {0: 12, 1: 10}
    run.steps(90)
    assert run.group == before
    run.pages = {0: 1000, 1: 10}
    run.steps(3)
    assert run.group.since > before.since
    assert run.parts[0] > 0.7
    before = run.group
    run.pages = {0: 10, 1: 1000}
    run.steps(50)
    assert run.group == before
    run.steps(12)
    assert run.parts[1] > 0.7


def test_another_coordinator_goes_on_with_what_was_said_until_shards_report():
    run = running({0: 10, 1: 30})
    message, other = run.published[-1], GroupRun({0: 10, 1: 30})
    other.wall, other.reporting = run.wall, {}
    other.core.follow()
    other.core.receive_multipliers(message, other.moment)
    other.core.lead(2, "coordinator-2")
    other.limit(2.0)
    other.steps(2)
    assert other.group == run.group
    other.reporting = {0: 1.0, 1: 1.0}
    other.steps(5)
    assert other.group == run.group


def test_a_limit_that_nobody_can_read_any_more_stands():
    run = running({0: 10})
    other = GroupRun({0: 10})
    other.wall = run.wall
    other.core.follow()
    other.core.receive_multipliers(run.published[-1], other.moment)
    other.core.lead(2, "coordinator-2")
    other.steps(5)
    assert other.group == run.group


def test_there_is_room_for_so_many_groups():
    run = GroupRun({0: 1})
    for number in range(MOST_GROUPS):
        run.limit(1.0, f"g{number}")
    with pytest.raises(BadMessage, match="take one back"):
        run.limit(1.0, "one-more")
    run.limit(5.0, "g3")
    run.limit(None, "g4")
    run.limit(1.0, "one-more")
    run.steps(2)
    assert len(run.core.timeline.newest.limits.groups) == MOST_GROUPS


def test_limits_that_were_taken_back_are_forgotten_however_many_they_were():
    run = running({0: 10})
    for hundred in range(20):
        names = [f"203.0.{hundred}.{number}" for number in range(MOST_GROUPS - 1)]
        for name in names:
            run.limit(1.0, name)
        run.steps(2)
        for name in names:
            run.limit(None, name)
        run.steps(10)
    assert len(run.core.groups) <= 8 * MOST_GROUPS
    run.steps(70)
    assert len(run.core.groups) == 1
    assert [shares.group for shares in run.core.timeline.newest.limits.groups] == [SHOP]


def test_who_follows_remembers_a_limit_that_was_taken_back_while_another_tells_of_it():
    run = running({0: 10})
    other = GroupRun({0: 10})
    other.wall = run.wall
    other.core.follow()
    other.limit(None)
    other.wall += 100.0
    other.core.receive_multipliers(run.published[-1], other.moment)
    other.core.lead(2, "coordinator-2")
    assert not other.core.next(other.moment).groups  # it comes too late, and counts for nobody
    other.steps(3)
    assert other.group is None


def test_who_only_follows_forgets_limits_that_were_taken_back_as_well():
    """Programs set and take back any number of them, and it may never come to lead."""
    run = running({0: 10})
    other = GroupRun({0: 10})
    other.core.follow()

    def both(seconds):
        for _ in range(seconds):
            for message in run.steps(1):
                other.wall = run.wall
                other.core.receive_multipliers(message, other.moment)

    other.limit(2.0)
    for number in range(10_000):
        other.limit(1.0, f"{number}.example")
        other.limit(None, f"{number}.example")
    both(50)
    assert len(other.core.groups) == 10_001, "another who led may not have heard of it yet"
    both(30)
    assert len(other.core.groups) == 1
    run.limit(None)
    other.limit(None)
    both(80)
    assert len(other.core.groups) == 0


def test_a_message_with_all_groups_and_shards_is_one_that_brokers_take():
    for shards in (1, 64, 195, 256, 1024, 4096):
        parts = [Allotment(shard, 0.123457) for shard in range(shards)]
        group = GroupShares("x" * 64, 0.123456789, 1.7e9 + 1 / 3, 1e9 + 1 / 3, parts)
        groups = [group] * most_groups(shards)
        message = Multipliers(1, 0.0, 0.0, 1.0, 1.0, 0.0, parts, "groups", groups=groups)
        assert len(encode(message)) < 1_000_000
    assert (most_groups(0), most_groups(64), most_groups(1024)) == (100, 100, 19)


def test_a_clock_that_is_set_moves_the_slots_of_groups_with_it():
    run = running({0: 10})
    before, now = run.group, run.moment.clock
    run.origin -= 100.0
    run.stepped = -100.0
    run.step()
    assert passed(run.group, now - 100.0 + 1.0) == pytest.approx(passed(before, now + 1.0))


class Counted(list):
    """A list that knows how often it was gone through."""

    times = 0

    def __iter__(self):
        self.times += 1
        return super().__iter__()


def test_each_report_is_gone_through_once_however_many_groups_have_limits():
    run = GroupRun({0: 5})
    run.steps(2)
    for number in range(MOST_GROUPS):
        run.limit(2.0, f"{number}.example")
    said = Counted([GroupPages("7.example", 5)])
    run.hear(report(0, 1.0, run.moment.clock, groups=said))
    message = run.core.next(run.moment)
    assert said.times == 1
    have = {of.group: [a.share for a in of.allotments] for of in message.groups}
    assert (len(have), have["7.example"], have["8.example"]) == (MOST_GROUPS, [1.0], [])
