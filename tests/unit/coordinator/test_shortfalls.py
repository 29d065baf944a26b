"""Slots that stay empty: whose share it costs, and whose it does not."""

import pytest
from coordination_run import Run, report


def settled(reporting, bandwidth):
    """A run in which the shards have what they want."""
    run = Run()
    run.reporting = reporting
    run.set_bandwidth(bandwidth)
    for _ in range(10):
        run.step()
    return run


def test_slots_that_a_shard_leaves_empty_go_to_the_others_within_seconds():
    run = settled({0: 100.0, 1: 300.0}, 400.0)
    assert run.shares() == {0: 0.25, 1: 0.75}
    assert run.published[-1].multiplier == pytest.approx(1.0, rel=1e-6)
    run.usable[1] = 100.0
    for _ in range(4):
        run.step()
    found = next(m for m in run.published if m.cause == "shortfall")
    assert "shard 1 leaves slots empty" in found.why
    assert run.shares()[1] * 400 == pytest.approx(102, abs=2)
    # Σ D = 100/√λ + 102 = 400
    assert run.published[-1].multiplier == pytest.approx((100 / 298) ** 2, rel=0.02)
    assert run.slots[0] + 100 == pytest.approx(398, abs=1)
    run.usable.clear()
    for _ in range(60):
        run.step()
    assert run.shares()[1] == pytest.approx(0.75, abs=0.03)
    assert run.published[-1].multiplier == pytest.approx(1.0, rel=0.02)


@pytest.mark.parametrize("seconds", [3, 8])
def test_a_shard_that_was_cut_off_is_not_judged_by_what_it_wrote_meanwhile(seconds):
    run = settled({0: 100.0, 1: 100.0}, 200.0)
    del run.reporting[1]
    since, written = run.moment.clock, []
    for second in range(seconds):
        run.step()
        # It made nothing of slots that it did not know of, or whose requests it could not send.
        written.append(report(1, 100.0, since + second + 1.0))
    for late in written:
        run.hear(late)
    run.reporting[1] = 100.0
    for _ in range(6):
        run.step()
    assert not any(m.cause == "shortfall" for m in run.published)
    assert run.shares()[1] == pytest.approx(0.5, abs=0.02)


def test_a_shard_that_stood_still_is_not_judged_by_it_unless_it_does_so_often():
    run = settled({0: 100.0, 1: 100.0}, 200.0)
    for times in (1, 2):
        since = run.moment.clock
        del run.reporting[1]
        run.step(3.0)
        crawls = 100.0 / (run.moment.clock - since)
        run.hear(report(1, 100.0, run.moment.clock, achieved_crawls_per_second=crawls))
        run.reporting[1] = 100.0
        for _ in range(3):
            run.step()
        assert any(m.cause == "shortfall" for m in run.published) == (times > 1)


def causes_since(run, count):
    return [message.cause for message in run.published[count:]]


@pytest.mark.parametrize("seconds", [1, 4])
def test_a_shard_that_was_just_loaded_is_not_judged_by_what_it_leaves_empty_at_first(seconds):
    run = settled({0: 100.0, 1: 100.0}, 200.0)
    begun = len(run.published)
    run.runs[1], run.usable[1] = "loaded anew", 20.0
    for _ in range(seconds):
        run.step()
    run.usable.clear()
    for _ in range(6):
        run.step()
    assert "shortfall" not in causes_since(run, begun)
    assert run.shares()[1] == pytest.approx(0.5, abs=0.02)


def test_a_family_has_its_share_at_once_when_its_shard_is_split_and_loaded():
    run = settled({0: 100.0, 1: 100.0}, 200.0)
    run.runs[1] = "before"
    for _ in range(7):
        run.step()
    run.usable[1] = 0.0  # Nothing of it is picked, until it is split.
    for _ in range(4):
        run.step()
    assert run.shares()[1] < 0.05  # Its slots are not lost meanwhile.
    run.reporting |= {1: 50.0, 3: 50.0}
    run.runs |= {1: "after", 3: "after"}
    run.usable |= {1: 2.0, 3: 0.0}  # It was loaded, and its hosts are to wait.
    begun = len(run.published)
    for _ in range(4):
        run.step()
    run.usable.clear()
    for _ in range(4):
        run.step()
    assert "shortfall" not in causes_since(run, begun)
    assert run.shares()[1] + run.shares()[3] == pytest.approx(0.5, abs=0.02)


def test_a_shard_that_was_loaded_and_cannot_use_its_slots_leaves_them_to_the_others():
    run = settled({0: 100.0, 1: 100.0}, 200.0)
    run.runs[1], run.usable[1] = "loaded anew", 20.0
    for _ in range(10):
        run.step()
    assert run.shares()[1] * 200 == pytest.approx(20.4, abs=1)
