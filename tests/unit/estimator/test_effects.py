"""The rules of what updates, signals and outcomes do to a page."""

import itertools

import numpy as np
import pytest
from one_page import DAY, apply, one_page, play, update

from services.estimator import effects
from services.estimator.columns import REMOVE, UPSERT, EventColumns
from services.estimator.effects import apply_events
from services.estimator.shard import Shard
from shared.contracts.identity import identify
from shared.rules.page_events import (
    CHANGED,
    COMPARE,
    FAILED,
    IS_GONE,
    SIGNAL,
    UNCHANGED,
)
from shared.store.page_status import ACTIVE, REMOVED


def test_the_first_crawl_leaves_no_record():
    shard = one_page()
    results = play(shard, (DAY, CHANGED))
    page = shard.pages[0]
    assert results.verdicts.tolist() == [effects.APPLIED]
    assert (page["last_crawled_at"], page["crawls"], page["changes"]) == (DAY, 1, 0)
    assert shard.rings.seen[0] == 0


def test_later_crawls_record_interval_signals_and_change():
    shard = one_page()
    results = play(
        shard,
        (1 * DAY, UNCHANGED),
        (2 * DAY, SIGNAL),
        (2.5 * DAY, SIGNAL),
        (4 * DAY, CHANGED),
        (5 * DAY, UNCHANGED),
    )
    assert results.interval_days[3:].tolist() == [3.0, 1.0]
    assert results.signals[3:].tolist() == [2, 0]
    assert results.changed[3:].tolist() == [True, False]
    page = shard.pages[0]
    assert (page["crawls"], page["changes"], page["last_changed_at"]) == (3, 1, 4 * DAY)
    assert (page["signals"], page["signal_count"], page["last_signal_at"]) == (0, 2, 2.5 * DAY)
    assert shard.rings.interval_days[0, :3].tolist() == [3.0, 1.0, 0.0]
    assert shard.rings.changed[0, :3].tolist() == [1, 0, 0]


def test_the_ring_keeps_the_last_records():
    shard = one_page()
    shard.hosts.tables.signals[0, 0] = 100.0  # so that bursts are used
    results = play(shard, *((d * (d + 1) / 2 * DAY, UNCHANGED) for d in range(1, 20)))
    assert shard.rings.seen[0] == 18
    assert results.interval_days.tolist()[-16:] == list(range(4, 20))
    # Effective days: each interval times the multiplier that held, 1 at first and then less.
    held = shard.rings.interval_days[0] / np.roll(np.arange(4, 20), 2)
    assert ((held > 0.1) & (held < 1)).all()


def test_signals_are_counted_by_source_until_the_next_crawl():
    shard = one_page()
    play(
        shard,
        (1 * DAY, UNCHANGED),
        (2 * DAY, SIGNAL, 0, 0),
        (2.5 * DAY, SIGNAL, 0, 3),
        (2.6 * DAY, SIGNAL, 0, 3),
    )
    assert shard.rings.pending[0].tolist() == [1, 0, 0, 2]
    play(shard, (3 * DAY, CHANGED))
    assert shard.rings.pending[0].tolist() == [0, 0, 0, 0]
    assert shard.rings.totals[0].tolist() == [1, 0, 0, 2]
    assert shard.rings.signals[0, 0].tolist() == [1, 0, 0, 2]
    assert shard.hosts.learning.signals[0].tolist() == [1, 0, 0, 2]


def test_a_signal_that_outran_the_news_of_a_crawl_keeps_its_source():
    shard = one_page()
    play(
        shard,
        (DAY, UNCHANGED),
        (2 * DAY, SIGNAL, 0, 1),
        (4 * DAY, SIGNAL, 0, 2),
    )
    play(shard, (3 * DAY, CHANGED))
    assert shard.rings.signals[0, 0].tolist() == [0, 1, 0, 0]
    assert shard.rings.pending[0].tolist() == [0, 0, 1, 0]


def test_the_multiplier_is_fixed_at_each_crawl_by_the_age_of_the_page():
    shard = one_page()
    tables = shard.hosts.tables
    tables.expected_changes[0] = [5, 15, 10, 5, 5, 5]
    tables.signals[0, 0] = 100.0
    play(shard, (DAY, UNCHANGED))
    assert shard.rings.multiplier[0] == 1.0, "no record yet"
    play(shard, (2 * DAY, SIGNAL), (3 * DAY, CHANGED))
    assert shard.rings.multiplier[0] == 3.0
    assert shard.rings.interval_days[0, 0] == 2.0
    play(shard, (4 * DAY, SIGNAL), (7 * DAY, UNCHANGED))
    assert shard.rings.multiplier[0] == 2.0
    assert shard.rings.interval_days[0, 1] == 12.0


def test_bursts_of_a_host_whose_signals_prove_false_are_not_used():
    shard = one_page()
    tables = shard.hosts.tables
    tables.expected_changes[0] = [5, 15, 10, 5, 5, 5]
    tables.signals[0, 0] = 100.0
    shard.hosts.learning.precision[0] = 0.02
    play(shard, (DAY, UNCHANGED), (3 * DAY, CHANGED))
    assert shard.rings.multiplier[0] == 1.0
    assert shard.hosts.learning.multipliers[0].tolist() == [1.0] * 6
    assert tables.expected_changes[0, 0] > 5.0, "the tables are kept all the same"
    shard.hosts.learning.precision[0] = 0.5
    assert shard.hosts.learning.multipliers[0, 1] == 3.0


def test_only_crawls_without_signals_teach_bursts():
    shard = one_page()
    play(
        shard,
        (DAY, UNCHANGED),
        (2 * DAY, SIGNAL),
        (3 * DAY, CHANGED),
    )
    expected = shard.hosts.tables.expected_changes
    assert expected[0].tolist() == [5.0] * 6
    play(shard, (4 * DAY, CHANGED))
    assert expected[0, 1] > 6.0, "a page that had just changed has changed again"
    assert shard.hosts.tables.predicted_changes[0, 1] == pytest.approx(5 + 1 / 60)


def test_repeats_and_late_comers_change_nothing():
    events = [
        (DAY, UNCHANGED),
        (2 * DAY, SIGNAL),
        (3 * DAY, CHANGED),
        (4 * DAY, FAILED),
    ]
    shard, once = one_page(), one_page()
    play(once, *events)
    play(shard, *events)
    again = play(shard, *events, (1.5 * DAY, SIGNAL), (3.5 * DAY, FAILED))
    assert set(again.verdicts.tolist()) == {effects.STALE}
    assert shard.pages.tobytes() == once.pages.tobytes()
    assert shard.rings.seen[0] == once.rings.seen[0] == 1


def test_digests_are_compared():
    shard = one_page()
    results = play(
        shard,
        (1 * DAY, COMPARE, 7),
        (2 * DAY, COMPARE, 7),
        (3 * DAY, COMPARE, 8),
    )
    assert results.verdicts.tolist() == [effects.APPLIED, effects.OBSERVED, effects.OBSERVED]
    assert results.changed.tolist() == [False, False, True]


def test_a_digest_with_nothing_to_compare_leaves_no_record():
    shard = one_page()
    results = play(shard, (DAY, CHANGED), (2 * DAY, COMPARE, 7))
    assert results.verdicts.tolist() == [effects.APPLIED, effects.APPLIED]
    assert (shard.pages["digest"][0], shard.pages["crawls"][0]) == (7, 2)


def test_a_failure_counts_until_a_success():
    shard = one_page()
    play(
        shard,
        (DAY, UNCHANGED),
        (2 * DAY, FAILED),
        (3 * DAY, FAILED),
    )
    page = shard.pages[0]
    assert (page["failures"], page["last_attempt_at"], page["last_crawled_at"]) == (2, 3 * DAY, DAY)
    results = play(shard, (4 * DAY, UNCHANGED))
    assert (page["failures"], results.interval_days[0]) == (0, 3.0)


def test_a_success_before_a_known_failure_does_not_clear_it():
    shard = one_page()
    play(shard, (3 * DAY, FAILED))
    play(shard, (2 * DAY, UNCHANGED))
    page = shard.pages[0]
    assert (page["failures"], page["last_attempt_at"], page["last_crawled_at"]) == (
        1,
        3 * DAY,
        2 * DAY,
    )


def test_a_signal_that_outran_the_news_of_a_crawl_counts_for_the_next_interval():
    shard = one_page()
    play(
        shard,
        (DAY, UNCHANGED),
        (2 * DAY, SIGNAL),
        (4 * DAY, SIGNAL),
    )
    results = play(shard, (3 * DAY, CHANGED))
    assert (results.signals[0], shard.pages["signals"][0]) == (1, 1)


@pytest.mark.parametrize(("after", "counted"), [(10.0, 0), (61.0, 1)])
def test_a_signal_soon_after_a_crawl_is_about_what_it_saw(after, counted):
    in_order, late_news = one_page(), one_page()
    play(in_order, (DAY, UNCHANGED), (DAY + after, SIGNAL), delay=60.0)
    play(late_news, (DAY + after, SIGNAL), delay=60.0)
    play(late_news, (DAY, UNCHANGED), delay=60.0)
    for shard in (in_order, late_news):
        assert (shard.pages["signals"][0], shard.pages["signal_count"][0]) == (counted, 1)


def test_a_signal_older_than_the_crawl_does_not_count_for_the_next():
    shard = one_page()
    results = play(shard, (2 * DAY, UNCHANGED))
    results = play(shard, (DAY, SIGNAL))
    assert results.verdicts[0] == effects.NOT_COUNTED
    assert (shard.pages["signals"][0], shard.pages["signal_count"][0]) == (0, 1)


def test_only_an_operator_brings_a_removed_page_back():
    shard = one_page()
    update(shard, DAY, REMOVE)
    play(
        shard,
        (2 * DAY, SIGNAL),
        (3 * DAY, UNCHANGED),
        (4 * DAY, IS_GONE),
    )
    assert shard.pages["status"][0] == REMOVED
    update(shard, 5 * DAY, UPSERT)
    assert shard.pages["status"][0] == ACTIVE


def test_updates_set_what_they_give():
    shard = one_page()
    update(shard, 1.0, UPSERT, importance=3.0)
    update(shard, 2.0, UPSERT, max_age_days=7.0, crawled_at=1.5)
    page = shard.pages[0]
    assert (page["importance"], page["max_age_days"]) == (3.0, 7.0)
    assert (page["last_crawled_at"], page["last_attempt_at"], page["crawls"]) == (1.5, 1.5, 0)


def test_an_older_update_never_undoes_a_newer_one():
    shard = one_page()
    update(shard, 2.0, UPSERT, importance=3.0)
    assert update(shard, 1.0, REMOVE) == effects.STALE
    assert (shard.pages["importance"][0], shard.pages["status"][0]) == (3.0, ACTIVE)


def test_unknown_pages_are_told_apart():
    shard = one_page()
    flags = np.array([0], np.int8)
    events = EventColumns(np.array([-1]), np.array([1.0]), flags, np.array([0]), flags)
    results = apply_events(
        shard.pages, shard.rings, shard.by_source, shard.hosts.tables, events, 0.0
    )
    assert results.verdicts[0] == effects.UNKNOWN_PAGE


def test_signals_in_any_order_leave_the_same_times():
    for order in itertools.permutations((DAY, 2 * DAY, 3 * DAY)):
        shard = one_page()
        play(shard, *((time, SIGNAL) for time in order))
        assert shard.pages["last_signal_at"][0] == 3 * DAY
        assert 1 <= shard.pages["signals"][0] <= 3


HOUR = 3600.0


def test_a_signal_that_is_learned_late_counts_whoever_pinged_meanwhile():
    shard = one_page()
    play(shard, (DAY, UNCHANGED))
    after = [DAY + hours * HOUR for hours in (2.0, 1.0, 1.0, 0.5)]
    verdicts = [play(shard, (after[0], SIGNAL, 0, 0)).verdicts[0]]
    verdicts += [play(shard, (at, SIGNAL, 0, 1)).verdicts[0] for at in after[1:]]
    assert verdicts == [effects.APPLIED, effects.APPLIED, effects.STALE, effects.STALE]
    assert shard.rings.pending[0].tolist() == [1, 1, 0, 0]
    assert (shard.pages["last_signal_at"][0], shard.rings.last_source[0]) == (after[0], 0)
    play(shard, (DAY + 3 * HOUR, UNCHANGED))
    assert shard.rings.signals[0, 0].tolist() == [1, 1, 0, 0]
    late = play(shard, (DAY + 2.5 * HOUR, SIGNAL, 0, 1))
    assert late.verdicts[0] == effects.NOT_COUNTED


def test_a_ping_an_hour_does_not_mute_a_precise_source():
    shard = one_page()
    play(shard, (DAY, UNCHANGED))
    for hour in range(1, 11):
        play(shard, (DAY + hour * HOUR, SIGNAL, 0, 0))
        play(shard, (DAY + (hour - 0.5) * HOUR, SIGNAL, 0, 2))
    assert shard.rings.pending[0].tolist() == [10, 0, 10, 0]
    assert shard.by_source.used == 2


def test_late_news_of_a_crawl_leaves_the_last_signal_of_each_source():
    shard = one_page()
    play(shard, (DAY, UNCHANGED))
    for hour, slot in ((1, 0), (2, 0), (5, 0), (6, 0), (4, 1), (2, 2)):
        play(shard, (DAY + hour * HOUR, SIGNAL, 0, slot))
    results = play(shard, (DAY + 3 * HOUR, CHANGED))
    # Of the first source's two that came after the crawl, one is known to have.
    assert results.signals[0] == 4
    assert shard.rings.signals[0, 0].tolist() == [3, 0, 1, 0]
    assert shard.rings.pending[0].tolist() == [1, 1, 0, 0]
    assert shard.pages["signals"][0] == 2


def test_pages_take_sixteen_bytes_more_if_several_sources_speak_of_them():
    shard = Shard(0)
    shard.add_pages([(identify(f"https://a.example/{n}"), 0.0) for n in range(1000)])
    before = shard.pages.itemsize

    def signals(slot, rows):
        count = rows.size
        kinds, slots = np.full(count, SIGNAL, np.int8), np.full(count, slot, np.int8)
        digests = np.zeros(count, np.int64)
        apply(shard, EventColumns(rows, np.full(count, DAY + slot), kinds, digests, slots))

    signals(0, np.arange(1000))
    assert shard.by_source.nbytes == 16
    for slot in (1, 2, 3):
        signals(slot, np.arange(100))
    assert shard.by_source.nbytes == 16 * 101
    assert before == 192, "with the entry's number where there was room to spare"
