"""Signals that come together are believed together, by what crawls of some of their pages find."""

import math

import numpy as np
import pytest
from reference_shard import DAY, rules

from services.scheduler.picking.calendar import make_shard
from services.scheduler.picking.priority import Terms, crawl_value_of
from services.scheduler.state.batches import BATCH_SECONDS, evidence_in_batch
from services.scheduler.state.crawls import Outcomes
from shared.contracts.identity import identify
from shared.contracts.messages import HostParameters, PageUpdate
from shared.contracts.request_ids import NO_REQUEST
from shared.rules.page_events import CHANGED, UNCHANGED

NOW = 1.7e9
PAGES = [identify(f"https://a.example/{number}") for number in range(30)]
IDS = np.array([page.page_id for page in PAGES])
KAPPA = 0.7


@pytest.fixture
def shard():
    shard = make_shard(0, rules())
    for page in PAGES:
        shard.upsert(
            page, PageUpdate("upsert", page.url, crawled_at=NOW - 10 * DAY), NOW - 20 * DAY
        )
    shard.host_parameters(
        [HostParameters("a.example", 0.01, KAPPA, ["cms"], [KAPPA] * 4, [1.0] * 6, NOW)]
    )
    return shard


def signal(shard, numbers, at, source="cms"):
    ids = IDS[numbers]
    shard.signals(ids, np.full(ids.size, at), [source] * ids.size)


def crawl(shard, number, at, result):
    shard.outcomes(
        Outcomes(
            IDS[[number]],
            np.array([at]),
            np.array([result], np.int8),
            np.array([NO_REQUEST]),
            np.zeros(1, np.uint32),
        )
    )


def signals(shard, numbers):
    rows = [shard.row_of(int(page_id)) for page_id in IDS[numbers]]
    return shard.pages["signals"][rows].tolist()


def test_as_long_as_nothing_is_known_signals_count_as_they_do_alone(shard):
    signal(shard, range(10), NOW)
    signal(shard, [3, 4], NOW + 1)
    assert signals(shard, range(5)) == [1.0, 1.0, 1.0, 2.0, 2.0]
    assert evidence_in_batch(KAPPA, 0.0) == pytest.approx(KAPPA, rel=1e-15)


def test_a_batch_that_proves_false_counts_for_less_on_the_pages_that_wait(shard):
    signal(shard, range(10), NOW)
    rest = []
    for number in range(8):
        crawl(shard, number, NOW + 60 + number, UNCHANGED)
        rest.append(signals(shard, [9])[0])
    assert rest == sorted(rest, reverse=True)
    assert rest[-1] < 0.5
    assert signals(shard, range(8)) == [0.0] * 8


def test_a_batch_that_proves_true_counts_for_more(shard):
    signal(shard, range(10), NOW)
    page = shard.pages[shard.row_of(int(IDS[9]))]
    before = crawl_value_of(page, NOW + 100, Terms(False, 0.0, 0.0))
    for number in range(8):
        crawl(shard, number, NOW + 60, CHANGED)
    assert signals(shard, [9])[0] > 1.5
    assert crawl_value_of(page, NOW + 100, Terms(False, 0.0, 0.0)) > before


def test_another_directory_is_another_batch(shard):
    pages = [identify(f"https://a.example/other/{number}") for number in range(2)]
    for page in pages:
        update = PageUpdate("upsert", page.url, crawled_at=NOW - 10 * DAY)
        shard.upsert(page, update, NOW - 20 * DAY)
    ids = np.array([page.page_id for page in pages])
    signal(shard, range(5), NOW)
    shard.signals(ids, np.full(2, NOW), ["cms"] * 2)
    for number in range(4):
        crawl(shard, number, NOW + 60, UNCHANGED)
    assert signals(shard, [4])[0] < 0.8
    rows = shard.rows_of(ids)
    assert shard.pages["signals"][rows].tolist() == [1.0, 1.0]


def test_another_source_and_another_time_are_another_batch(shard):
    signal(shard, range(5), NOW)
    signal(shard, range(5, 10), NOW, "feed")
    signal(shard, range(10, 15), NOW + BATCH_SECONDS + 1)
    signal(shard, range(15, 20), NOW + BATCH_SECONDS / 2)
    for number in range(4):
        crawl(shard, number, NOW + 600, UNCHANGED)
    assert signals(shard, [9, 14]) == [1.0, 1.0]
    assert signals(shard, [4])[0] < 0.8


def test_what_came_before_the_batch_stays(shard):
    signal(shard, [0], NOW - DAY)
    signal(shard, [0, 1, 2, 3], NOW)
    for number in (1, 2, 3):
        crawl(shard, number, NOW + 60, UNCHANGED)
    assert 1.0 < signals(shard, [0])[0] < 1.8


def test_a_page_that_is_crawled_leaves_its_batch(shard):
    signal(shard, range(6), NOW)
    crawl(shard, 0, NOW + 60, CHANGED)
    for number in range(1, 5):
        crawl(shard, number, NOW + 120, CHANGED)
    assert signals(shard, range(5)) == [0.0] * 5


def test_a_first_copy_and_late_news_teach_nothing(shard):
    new = identify("https://a.example/new")
    shard.upsert(new, PageUpdate("upsert", new.url), NOW)
    shard.signals(np.array([new.page_id]), np.array([NOW]), ["cms"])
    signal(shard, [1, 2], NOW)
    shard.outcomes(
        Outcomes(
            np.array([new.page_id]),
            np.array([NOW + 5]),
            np.array([UNCHANGED], np.int8),
            np.array([NO_REQUEST]),
            np.zeros(1, np.uint32),
        )
    )
    crawl(shard, 1, NOW - 5, UNCHANGED)  # the signal came after it
    assert signals(shard, [1, 2]) == [1.0, 1.0]


def test_a_page_that_is_removed_leaves_its_batch_and_its_row_may_be_used_again(shard):
    signal(shard, range(6), NOW)
    shard.remove(PAGES[3].page_id, NOW + 1)
    again = identify("https://a.example/again")
    shard.upsert(again, PageUpdate("upsert", again.url, crawled_at=NOW + 2), NOW + 2)
    for number in (0, 1, 2):
        crawl(shard, number, NOW + 60, UNCHANGED)
    row = shard.row_of(again.page_id)
    assert shard.pages[row]["signals"] == 0.0
    assert signals(shard, [4])[0] < 1.0


def waiting_by_batch(shard):
    """The pages of each batch, by walking its list both ways."""
    batches = shard.batches.arrays(shard.signal_times.size)
    found = {}
    for number in np.unique(batches.waiting.batches[: shard.signal_times.size]).tolist():
        if number < 0:
            continue
        place, before = int(batches.rows[number]["first"]), -1
        while place >= 0:
            assert batches.waiting.preceding[place] == before
            assert batches.waiting.batches[place] == number
            found.setdefault(number, set()).add(place)
            before, place = place, int(batches.waiting.following[place])
    return found


def test_whatever_comes_lists_are_whole_and_batches_are_used_again(shard):
    rng = np.random.default_rng(5)
    now = NOW
    for _ in range(1500):
        now += float(rng.exponential(90.0))
        if rng.random() < 0.5:
            some = rng.choice(30, int(rng.integers(1, 8)), replace=False)
            signal(shard, some, now, f"s{rng.integers(6)}")
        else:
            crawl(shard, int(rng.integers(30)), now, CHANGED if rng.random() < 0.4 else UNCHANGED)
    batches = shard.batches.arrays(shard.signal_times.size)
    found = waiting_by_batch(shard)
    of_places = batches.waiting.batches[: shard.signal_times.size]
    assert sum(map(len, found.values())) == int((of_places >= 0).sum())
    joinable = set(batches.joinable[batches.joinable >= 0].tolist())
    used = set(range(len(batches.rows))) - set(batches.free[: batches.counts[0]].tolist())
    assert used == joinable | found.keys()
    assert len(batches.rows) < 256
    assert np.isfinite(shard.pages["signals"][: shard.used]).all()


def test_no_evidence_and_all_evidence_are_taken_at_their_word(shard):
    for kappa in (1e-30, 1e30):
        shard.host_parameters(
            [HostParameters("a.example", 0.01, kappa, ["cms"], [kappa] * 4, [1.0] * 6, NOW)]
        )
        number = 20 if kappa < 1 else 21
        signal(shard, [number], NOW)
        [weight] = signals(shard, [number])
        assert math.isfinite(weight)
        crawl(shard, number, NOW + 60, UNCHANGED)
        assert signals(shard, [number]) == [0.0]
