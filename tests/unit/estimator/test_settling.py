"""What is learned and announced of pages beside their fits, against the same in whole columns."""

import numpy as np
import pytest

from services.estimator.settling import each_once, evidence_of_pages, settle, take_material
from services.estimator.shard import PAGE
from shared.policy.estimation.page_factors import activity_bins
from shared.policy.estimation.sources import effective_signal_evidence, usual_mix
from shared.store.history import SOURCES
from shared.store.page_status import ACTIVE, NEVER, REMOVED
from shared.units import SECONDS_PER_DAY

_PAGES, _HOSTS = 400, 7


@pytest.fixture
def random():
    return np.random.default_rng(5)


@pytest.fixture
def pages(random):
    """Pages with and without signals, some of which were read."""
    pages = np.zeros(_PAGES, PAGE)
    pages["host"] = random.integers(0, _HOSTS, _PAGES)
    pages["first_seen_at"] = random.uniform(0, 100, _PAGES) * SECONDS_PER_DAY
    pages["last_attempt_at"] = random.uniform(0, 200, _PAGES) * SECONDS_PER_DAY
    pages["last_signal_at"] = np.where(random.random(_PAGES) < 0.5, NEVER, 2e7)
    pages["signal_count"] = random.integers(0, 3, _PAGES) * random.integers(0, 40, _PAGES)
    pages["status"] = np.where(random.random(_PAGES) < 0.8, ACTIVE, REMOVED)
    pages["is_read"] = random.random(_PAGES) < 0.5
    for name, known in (
        ("unsignalled_change_rate", "announced_change_rate"),
        ("signal_evidence", "announced_evidence"),
        ("signal_rate", "announced_signal_rate"),
    ):
        pages[name] = random.lognormal(0.0, 1.0, _PAGES)
        pages[known] = pages[name] * random.choice([1.0, 1.001, 1.04, 0.97, 1.3, np.nan], _PAGES)
    pages["announced_activity"] = activity_bins(pages["signal_count"].copy())
    pages["announced_activity"][::9] += 1
    return pages


def test_pages_get_the_evidence_that_the_policy_library_gives_them(pages, random):
    totals = random.integers(0, 5, (_PAGES, SOURCES)).astype(np.uint32)
    totals[::2] = 0
    of_hosts = random.integers(0, 9, (_HOSTS, SOURCES)).astype(np.float64)
    of_hosts[3] = 0.0
    evidence = random.exponential(0.7, (_PAGES, SOURCES)).astype(np.float32)
    seen = random.integers(0, 2, _PAGES).astype(np.int32)
    before = pages.copy()
    rows = np.flatnonzero(random.random(_PAGES) < 0.7)
    settle(pages, seen, totals, evidence, of_hosts, rows)

    own = totals.astype(np.float64)
    has_own = own.sum(axis=1, keepdims=True) > 0
    mix = np.where(has_own, own, usual_mix(of_hosts)[before["host"]])
    by_source = effective_signal_evidence(mix, evidence)
    assert pages["signal_rate"].tolist() == before["signal_rate"].tolist()
    expected = before["signal_evidence"].copy()
    known = rows[seen[rows] > 0]
    expected[known] = by_source[known]
    assert pages["signal_evidence"].tolist() == expected.tolist()
    found = evidence_of_pages(pages, totals, of_hosts, rows, evidence[rows])
    assert found.tolist() == by_source[rows].tolist()


def test_what_is_announced_is_what_moved_by_more_than_is_material_or_crossed_a_step(pages, random):
    seen = random.integers(0, 2, _PAGES).astype(np.int32)
    rows = random.permutation(_PAGES)[:300]
    before, limit = pages.copy(), 0.05
    chosen = take_material(pages, seen, rows, limit)

    material = np.zeros(_PAGES, np.bool_)
    for name, known in (
        ("unsignalled_change_rate", "announced_change_rate"),
        ("signal_evidence", "announced_evidence"),
        ("signal_rate", "announced_signal_rate"),
    ):
        is_near = np.abs(before[name] - before[known]) <= limit * before[known]
        steps = [np.floor(np.log(before[of]) / np.log(1 + limit)) for of in (name, known)]
        moved = ~is_near | (before["is_read"] & (steps[0] != steps[1]))
        material |= moved & ((seen > 0) | (name == "signal_rate"))
    activity = activity_bins(before["signal_count"].copy())
    material |= (seen == 0) & (activity != before["announced_activity"])
    material &= before["status"] == ACTIVE
    assert chosen.tolist() == material[rows].tolist()
    assert 20 < chosen.sum() < 280
    told = rows[chosen]
    assert (
        pages["announced_change_rate"][told].tolist()
        == before["unsignalled_change_rate"][told].tolist()
    )
    assert pages["announced_activity"][told].tolist() == activity[told].tolist()
    others = np.setdiff1d(np.arange(_PAGES), told)
    for name in PAGE.names or ():
        np.testing.assert_array_equal(pages[name][others], before[name][others])
    assert not take_material(pages, seen, told, limit).any()


def test_rows_come_once_and_rising(random):
    rows = random.integers(0, 50, 200)
    assert each_once(rows).tolist() == sorted(set(rows.tolist()))
    assert each_once(rows[:0]).tolist() == []
