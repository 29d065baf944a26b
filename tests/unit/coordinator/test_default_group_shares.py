"""The coordinator divides the default limit of groups of which hosts wait, and of no others."""

import itertools

import pytest
from coordination_run import Run, report

from services.coordinator.core import Coordination
from services.coordinator.default_groups import LEAST_SECONDS, SETTLED_SECONDS, fitting
from shared.contracts.codec import encode
from shared.contracts.messages import Allotment, GroupLimit, GroupShares, Multipliers
from shared.contracts.shares import MOST_DIVIDED, DefaultShares, DividedGroup, NamedPages
from shared.pacing.groups import most_groups, passed

HERE, THERE = "203.0.113.7", "203.0.113.8"


class DefaultRun(Run):
    """Shards that have so many pages of some groups, of which some wait."""

    def __init__(self, pages, waits=(), rate=5.0):
        super().__init__()
        self.core = Coordination(5.0, 0.3, rate)
        self.core.lead(1, "coordinator-1")
        self.pages, self.waits = pages, set(waits)
        self.told = set()
        """Groups of which shards tell, though they are not listed and nobody waits."""
        self.reporting = dict.fromkeys(pages, 1.0)
        self.set_bandwidth(10.0)

    def report(self, shard, scale, since):
        listed = {of.group for of in self.default.divided} if self.default else set()
        named = [
            NamedPages(group, count, group in self.waits)
            for group, count in self.pages[shard].items()
            if group in listed | self.waits | self.told
        ]
        return report(shard, scale, self.moment.clock, named=named)

    def steps(self, count):
        return [m for m in (self.step() for _ in range(count)) if m is not None]

    @property
    def default(self):
        newest = self.core.timeline.newest
        return newest.limits.default if newest else None

    @property
    def parts(self):
        return {
            of.group: dict(zip(of.shards, of.shares, strict=True)) for of in self.default.divided
        }


def seconds(run, count):
    begin, found = run.wall, []
    while run.wall < begin + count:
        found += run.steps(1)
    return found


def test_without_the_setting_there_is_no_limit():
    run = DefaultRun({0: {HERE: 5}}, waits=[HERE], rate=None)
    seconds(run, 20)
    assert run.default is None


def test_all_shards_have_equal_parts_of_groups_of_which_nobody_waits():
    run = DefaultRun({0: {HERE: 5}, 1: {}, 2: {HERE: 5}})
    said = seconds(run, 3)
    assert any("any other group take at most 5 crawls/s" in message.why for message in said)
    assert run.default.shards == 3
    before = run.default
    seconds(run, 60)
    assert run.default == before


def test_a_group_that_shards_tell_of_is_not_divided_where_nobody_waits():
    run = DefaultRun({0: {HERE: 5}, 1: {HERE: 5}})
    run.told.add(HERE)
    seconds(run, LEAST_SECONDS + SETTLED_SECONDS + 5)
    assert run.parts == {}


def test_a_group_that_waits_is_told_of_and_then_divided():
    run = DefaultRun({0: {HERE: 30, THERE: 7}, 1: {}, 2: {HERE: 10}}, waits=[HERE])
    seconds(run, 2)
    before = run.default
    seconds(run, 2)
    assert run.parts == {HERE: {}}
    assert run.default.since == before.since
    said = seconds(run, LEAST_SECONDS + SETTLED_SECONDS)
    assert run.parts == {HERE: pytest.approx({0: 0.25 + 0.375, 2: 0.25 + 0.125})}
    assert run.default.first_slot == pytest.approx(passed(before, run.default.since))
    assert any("is divided by pages for 1" in message.why for message in said)
    # Nobody waits any more: it stays as it is.
    run.waits.clear()
    before = run.default
    seconds(run, 60)
    assert run.default == before


def test_who_alone_has_a_group_has_all_of_its_limit():
    run = DefaultRun({shard: {HERE: 9} if shard == 3 else {} for shard in range(8)}, waits=[HERE])
    seconds(run, 30)
    assert run.parts == {HERE: {3: 1.0}}


def test_a_shard_that_gets_some_has_a_part_soon_and_a_silent_one_none():
    run = DefaultRun({0: {HERE: 10}, 1: {}, 2: {HERE: 10}}, waits=[HERE])
    seconds(run, 30)
    run.pages[1][HERE] = 20
    seconds(run, LEAST_SECONDS + 3)
    assert run.parts[HERE][1] > 0.3
    del run.reporting[2]
    seconds(run, 2 * LEAST_SECONDS)
    assert run.parts[HERE].keys() == {0, 1}


def test_changes_cost_few_of_the_slots():
    run = DefaultRun({0: {HERE: 10}, 1: {HERE: 10}}, waits=[HERE], rate=0.5)
    changed = []
    for turn in range(200):
        run.pages[0][HERE] = 10 if turn % 2 else 1000
        before = run.default
        run.steps(1)
        if before is not None and run.default.since != before.since:
            changed.append(run.default.since)
    assert len(changed) > 2
    assert min(b - a for a, b in itertools.pairwise(changed)) >= 20 / 0.5 - 1e-6


def test_a_group_with_a_limit_of_its_own_is_not_divided():
    run = DefaultRun({0: {HERE: 10, THERE: 3}}, waits=[HERE, THERE])
    run.core.groups.receive(GroupLimit(HERE, 2.0))
    seconds(run, 30)
    assert run.parts == {THERE: {0: 1.0}}


def test_a_group_that_nobody_has_any_more_makes_room():
    run = DefaultRun({0: {HERE: 10, THERE: 3}}, waits=[HERE, THERE])
    seconds(run, 30)
    del run.pages[0][HERE]
    run.pages[0]["203.0.113.9"] = 5
    run.waits = {"203.0.113.9"}
    seconds(run, 30)
    assert run.parts.pop(HERE, {}) == {}
    assert run.parts["203.0.113.9"] == {0: 1.0}


def test_of_too_many_the_largest_are_divided():
    pages = {f"g{number:04}": number + 1 for number in range(MOST_DIVIDED + 50)}
    run = DefaultRun({0: pages}, waits=pages)
    seconds(run, 30)
    assert len(run.default.divided) == MOST_DIVIDED
    assert "g0000" not in run.parts
    assert f"g{MOST_DIVIDED + 49:04}" in run.parts


@pytest.mark.slow(2)
def test_groups_for_which_there_is_no_room_change_nothing_of_the_others():
    """Each change costs the slot that has begun, of all groups."""
    pages = {f"g{number:04}": number + 1 for number in range(80)}
    run = DefaultRun(dict.fromkeys(range(100), pages), waits=pages)
    seconds(run, 30)
    assert 0 < len([of for of in run.default.divided if of.shards]) < len(pages)
    since = run.default.since
    seconds(run, 60)
    assert run.default.since == since


def test_a_new_leader_goes_on_with_what_was_said():
    run = DefaultRun({0: {HERE: 10}, 1: {HERE: 30}}, waits=[HERE])
    seconds(run, 30)
    other = DefaultRun({0: {HERE: 10}, 1: {HERE: 30}})
    other.wall, other.reporting = run.wall, {}
    other.core.follow()
    other.core.receive_multipliers(run.published[-1], other.moment)
    other.core.lead(2, "coordinator-2")
    seconds(other, 20)
    assert other.default == run.default
    other.reporting = {0: 1.0}
    seconds(other, 20)
    other.reporting = {0: 1.0, 1: 1.0}
    seconds(other, 30)
    assert other.parts == run.parts


def test_what_is_divided_fits_beside_all_other_limits():
    for shards in (1, 64, 1024, 4096):
        parts = [Allotment(shard, 0.123457) for shard in range(shards)]
        group = GroupShares("x" * 64, 0.123456789, 1.7e9 + 1 / 3, 1e9 + 1 / 3, parts)
        several = list(range(min(shards, 50)))
        name, shares = "y" * 61, [0.123457] * len(several)
        many = [DividedGroup(f"{name}{n}", several, shares) for n in range(MOST_DIVIDED)]
        default = DefaultShares(0.123456789, 1.7e9 + 1 / 3, 1e9 + 1 / 3, shards, fitting(many))
        message = Multipliers(
            1, 0.0, 0.0, 1.0, 1.0, 0.0, parts, "groups", groups=[group] * most_groups(shards),
            default_groups=default,
        )  # fmt: skip
        assert len(encode(message)) < 1_000_000


def test_a_clock_that_is_set_moves_the_slots_with_it():
    run = DefaultRun({0: {HERE: 10}})
    seconds(run, 3)
    before, now = run.default, run.moment.clock
    run.origin -= 100.0
    run.stepped = -100.0
    run.step()
    assert passed(run.default, now - 100.0 + 1.0) == pytest.approx(passed(before, now + 1.0))
