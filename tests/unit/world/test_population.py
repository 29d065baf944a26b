"""The shapes of a generated population, and its events against its rates."""

import numpy as np
import pytest

from services.world.population import SOURCES, GeneratedStream, generate_population
from shared.contracts.identity import identify

COUNT = 20_000


@pytest.fixture(scope="module")
def population():
    return generate_population(COUNT, seed=7)


def test_the_seed_decides(population) -> None:
    again = generate_population(COUNT, seed=7)
    other = generate_population(COUNT, seed=8)

    assert again.pages.urls[:] == population.pages.urls[:]
    assert np.array_equal(again.change_rate, population.change_rate)
    assert not np.array_equal(other.change_rate, population.change_rate)


def test_the_pages_are_named_as_everywhere(population) -> None:
    pages = population.pages
    rows = slice(COUNT // 2, COUNT // 2 + 500)
    names = [identify(url) for url in pages.urls[rows]]

    assert [page.url for page in names] == pages.urls[rows]
    assert [page.host for page in names] == pages.hosts[rows]
    assert [page.page_id for page in names] == pages.page_ids[rows].tolist()
    assert pages.urls[7] == pages.urls[:8][7]
    assert pages.hosts[7] == pages.hosts[:8][7]
    assert np.unique(pages.page_ids).size == COUNT


def test_hosts_and_importance_are_heavy_tailed(population) -> None:
    _, sizes = np.unique(population.pages.hosts, return_counts=True)
    sizes = np.sort(sizes)[::-1]
    importance = np.sort(population.pages.importance)[::-1]

    assert sizes[0] > 100 * np.median(sizes)
    assert importance[: COUNT // 100].sum() > 0.1 * importance.sum()
    assert importance.min() >= 1
    assert importance.max() <= 1000


def test_parameters_are_in_their_ranges(population) -> None:
    silent = population.source < 0

    assert 0.01 < silent.mean() < 0.9
    assert np.all(population.recall[silent] == 0)
    assert np.all((population.recall >= 0) & (population.recall <= 1))
    assert np.all(population.change_rate > 0)
    assert np.all(population.false_signal_rate[silent] == 0)
    assert 0 < (~population.pages.held).mean() < 0.1


def test_a_tiny_population_works() -> None:
    population = generate_population(1, seed=0)
    stream = GeneratedStream(population, seed=0)

    assert len(population.pages) == 1
    assert len(stream.changes(10_000.0)) > 0


def test_events_follow_the_rates(population) -> None:
    days = 30.0
    stream = GeneratedStream(population, seed=3)
    changes = stream.changes(days)
    signals = stream.signals(days)

    expected = population.change_rate.sum() * days
    assert abs(len(changes) - expected) < 5 * np.sqrt(expected)
    assert np.all(np.diff(changes.days) >= 0)
    assert np.all(np.diff(signals.days) >= 0)
    busy = np.argsort(population.change_rate)[-200:]
    counts = np.bincount(changes.pages, minlength=COUNT)[busy]
    expected_of_busy = population.change_rate[busy] * days
    assert abs(counts.sum() - expected_of_busy.sum()) < 5 * np.sqrt(expected_of_busy.sum())
    sent = (population.recall * population.change_rate + population.false_signal_rate).sum() * days
    assert abs(len(signals) - sent) < 0.1 * sent
    assert np.all(population.source[signals.pages] == signals.sources)


def test_sitemaps_announce_at_midnight(population) -> None:
    signals = GeneratedStream(population, seed=3).signals(5.0)
    from_sitemaps = signals.sources == SOURCES.index("sitemap")

    assert from_sitemaps.any()
    assert np.all(signals.days[from_sitemaps] % 1 == 0)


@pytest.mark.parametrize("stretch", [0.3, 2.0])
def test_reading_in_pieces_loses_nothing(population, stretch: float) -> None:
    whole = GeneratedStream(population, seed=5, stretch_days=stretch)
    pieces = GeneratedStream(population, seed=5, stretch_days=stretch)
    in_pieces = [pieces.changes(day) for day in np.linspace(0, 4, 23)]
    signal_pieces = [pieces.signals(day) for day in np.linspace(0, 4, 23)]

    assert np.array_equal(np.concatenate([p.days for p in in_pieces]), whole.changes(4.0).days)
    assert np.array_equal(np.concatenate([p.days for p in signal_pieces]), whole.signals(4.0).days)
