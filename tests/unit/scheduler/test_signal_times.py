"""Signals count by page and source: what one says never mutes another."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_shard import DAY, NEVER, World, rules
from test_learned_hosts import told

from services.scheduler.state.signal_times import SignalTimes
from shared.store.history import SOURCES

NOW = 1.7e9
HOUR = 3600.0


@pytest.fixture
def page():
    """A page that was crawled just now, and what happens to it."""
    return Page()


class Page:
    def __init__(self):
        self.world = World(rules())
        identity = self.world.add_page("a", 1, NOW - DAY, last_crawled_at=NOW)
        self.id = identity.page_id

    def signal(self, at, source):
        self.world.shard.signals(np.array([self.id]), np.array([at]), [source])

    def crawl(self, at):
        self.world.outcome(self.id, at)

    @property
    def signals(self):
        return float(self.world.shard.pages["signals"][self.world.shard.row_of(self.id)])


def test_a_signal_that_is_learned_late_counts_whoever_pinged_meanwhile(page):
    page.signal(NOW + 2 * HOUR, "ping")
    page.signal(NOW + 1 * HOUR, "lastmod")
    assert page.signals == 2
    page.signal(NOW + 1 * HOUR, "lastmod")
    assert page.signals == 2, "the same again"
    page.signal(NOW + 0.5 * HOUR, "lastmod")
    assert page.signals == 2, "older than the last of its source"
    page.crawl(NOW + 3 * HOUR)
    page.signal(NOW + 2.5 * HOUR, "lastmod")
    assert page.signals == 0, "the crawl saw it"


@settings(max_examples=50, deadline=None)
@given(st.floats(0.0, 3e9, width=64))
def test_a_signal_that_is_sent_again_counts_once_whenever_it_was(time):
    kept, row, slot = SignalTimes(), np.zeros(2, np.int32), np.zeros(2, np.int8)
    assert kept.note(row, slot, np.full(2, time)).tolist() == [True, False]
    assert not kept.note(row, slot, np.full(2, time)).any()
    assert kept.of(0) == time if time > DAY * 700 else kept.of(0) == pytest.approx(time, abs=1e-8)


def test_a_ping_an_hour_does_not_mute_a_precise_source(page):
    for hour in range(1, 11):
        page.signal(NOW + hour * HOUR, "anybody")
        page.signal(NOW + (hour - 0.5) * HOUR, "lastmod")
    assert page.signals == 20


def test_sources_without_a_slot_of_their_own_share_one_and_mute_nobody_else(page):
    for source in ("one", "two", "three"):
        page.signal(NOW + 1 * HOUR, source)
    page.signal(NOW + 9 * HOUR, "four")
    page.signal(NOW + 8 * HOUR, "five")
    assert page.signals == 4, "the fifth is older than the last of its slot"
    page.signal(NOW + 2 * HOUR, "two")
    assert page.signals == 5


def test_what_came_after_a_crawl_but_before_the_news_of_it_stays_once_a_source(page):
    page.world.shard.host_parameters(
        [told(sources=["feed", "hub"], evidence=[1.0, 0.25, 0.5, 0.5])]
    )
    for hour in (1, 2, 5, 6):
        page.signal(NOW + hour * HOUR, "feed")
    page.signal(NOW + 4 * HOUR, "hub")
    page.signal(NOW + 2 * HOUR, "new")
    page.crawl(NOW + 3 * HOUR)
    assert page.signals == 2.0 + 0.5
    page.crawl(NOW + 5 * HOUR)
    assert page.signals == 2.0


def test_the_slots_that_sources_get_here_give_way_to_those_of_the_estimator(page):
    for source in ("x", "y"):
        page.signal(NOW + 5 * HOUR, source)
    page.world.shard.host_parameters([told(sources=["y"])])
    learned, host = page.world.shard.hosts.learned, np.zeros(4, np.int32)
    assert learned.slots_of(host, ["y", "x", "z", "z"]).tolist() == [0, 1, 2, 2]
    page.world.shard.host_parameters([told(sources=["y", "x"])])
    assert learned.slots_of(host, ["y", "x", "z", "w"]).tolist() == [0, 1, 2, 3]
    assert learned.slots_of(np.array([-1]), ["nobody"]).tolist() == [0]
    page.signal(NOW + 6 * HOUR, "x")
    assert page.signals == 3


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(-1, 12),
            st.integers(0, SOURCES - 1),
            # Within a year, in steps that are kept exactly.
            st.integers(0, 300 * 86_400).map(lambda step: step + step % 128 / 128),
        ),
        max_size=300,
    )
)
def test_times_of_signals_are_a_dictionary_by_page_and_source(signals):
    known, kept = {}, SignalTimes()
    for part in range(0, len(signals), 7):
        batch = signals[part : part + 7]
        rows, slots, times = (np.array(column) for column in zip(*batch, strict=True))
        is_later = kept.note(rows.astype(np.int32), slots.astype(np.int8), times.astype(float))
        for (row, slot, time), later in zip(batch, is_later, strict=True):
            assert later == (row >= 0 and time > known.get((row, slot), NEVER))
            if later:
                known[row, slot] = time
    for row in range(13):
        wanted = [known.get((row, slot), NEVER) for slot in range(SOURCES)]
        assert kept.by_source(row) == wanted
        assert kept.of(row) == max(wanted)
    kept.forget(3)
    assert kept.by_source(3) == [NEVER] * SOURCES
    assert kept.note(np.array([3], np.int32), np.array([1], np.int8), np.array([0.0])).all()
    assert kept.of(3) == 0.0


def test_what_a_source_said_more_than_a_year_before_another_counts_as_a_year_ago():
    kept, row = SignalTimes(), np.array([0], np.int32)
    kept.note(row, np.array([0], np.int8), np.array([1000.5]))
    kept.note(row, np.array([1], np.int8), np.array([1000.5 + 500 * DAY]))
    kept.note(row, np.array([2], np.int8), np.array([1000.5 + 900 * DAY]))
    old, older, new, never = kept.by_source(0)
    assert new == 1000.5 + 900 * DAY
    assert old == older == pytest.approx(new - 388.4 * DAY, abs=DAY)
    assert never == NEVER


def test_a_page_takes_sixteen_bytes_more_if_several_sources_speak_of_it():
    def nbytes(pages, sources):
        kept = SignalTimes()
        kept.reserve(pages + 100)
        for slot in range(sources):
            for first in range(0, pages, 100):
                rows = np.arange(first, first + 100, dtype=np.int32)
                kept.note(rows, np.full(100, slot, np.int8), np.full(100, NOW + slot))
        return kept.nbytes

    pages = 10_000
    assert nbytes(pages, 1) <= 18 * pages
    for sources in range(2, SOURCES + 1):
        assert nbytes(pages, sources) - nbytes(pages, 1) == 16 * pages
