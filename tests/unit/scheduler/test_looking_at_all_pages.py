"""A look at all pages by several threads finds and places what one thread would."""

import numpy as np
import pytest

from services.bench.scheduled_pages import ORIGIN, Population, make_filled_shard
from services.scheduler.picking import scanning
from services.scheduler.picking.board import settle_all
from services.scheduler.picking.priority import HIGHEST_VALUE
from services.scheduler.state.rows import NEVER
from shared.store import row_threads

PAGES = 5_000


@pytest.fixture(params=[1, 2, 4])
def slices(request, monkeypatch):
    """So few pages are many; by so many threads."""
    monkeypatch.setattr(row_threads, "threads", lambda: request.param)
    monkeypatch.setattr(scanning, "threads", lambda: request.param)
    monkeypatch.setattr(scanning, "ROWS_AT_ONCE", 300)
    monkeypatch.setattr(row_threads.in_slices, "__defaults__", (300,))


def some_shard(seed):
    """Pages of which a tenth was never crawled, and some are worth the same."""
    population = Population(PAGES, 100.0, 50.0, 40, seed)
    shard, _ = make_filled_shard(population, np.where(np.arange(40) < 8, 0.01, 1e9))
    random = np.random.default_rng(seed)
    shard.pages["last_crawled_at"][:PAGES][random.random(PAGES) < 0.1] = NEVER
    shard.pages[200:400] = shard.pages[100:300]
    shard.hosts.rows["is_limited"][:8] = 0
    return shard


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("most", [50, 400, 10 * PAGES])
@pytest.mark.parametrize("highest", [HIGHEST_VALUE, np.inf])
def test_the_best_of_all_are_the_best_of_every_part(slices, seed, most, highest):
    shard = some_shard(seed)
    shard.selector.prepare(ORIGIN)
    board = shard.selector._board
    wanted = board.pages, board.attempts, PAGES, most, highest, ORIGIN, board.terms

    rows, priorities = scanning.best_pages(*wanted)
    mine, of_mine = scanning._best_of_all(board, PAGES, most, highest, ORIGIN)
    every = scanning.priorities_at(
        board.pages, board.attempts, np.arange(PAGES), ORIGIN, board.terms
    )
    those = np.sort(every[(every > 0.0) & (every <= highest)])[::-1][:most]

    assert np.sort(priorities)[::-1].tolist() == those.tolist()
    assert np.sort(of_mine).tolist() == np.sort(priorities).tolist()
    assert np.unique(mine).size == mine.size == rows.size
    assert scanning.priorities_at(
        board.pages, board.attempts, mine, ORIGIN, board.terms
    ).tolist() == (of_mine.tolist())


@pytest.mark.parametrize("seed", range(3))
def test_pages_come_to_the_places_that_one_thread_gives_them(slices, seed, monkeypatch):
    mine, other = some_shard(seed), some_shard(seed)
    mine.selector.prepare(ORIGIN)
    monkeypatch.setattr(scanning, "threads", lambda: 1)
    monkeypatch.setattr(
        "services.scheduler.picking.calendar.place_all",
        lambda board, used: settle_all(board, 0, used),
    )
    other.selector.prepare(ORIGIN)

    boards = mine.selector._board, other.selector._board
    for name in ("pages", "hosts", "state", "listed", "urgent", "urgent_keys"):
        first, second = (getattr(board, name) for board in boards)
        assert first.tobytes() == second.tobytes(), name
    for first, second in zip(boards[0].wheel, boards[1].wheel, strict=True):
        assert first.tobytes() == second.tobytes()
