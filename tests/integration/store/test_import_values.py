"""Rows of an import that say what no message could: they are refused, by whichever way they go."""

import asyncio

import numpy as np
import pytest
from page_batches import page_batch, published_updates

from services.cli import page_updates
from shared.runtime.settings import Settings
from shared.store.imports import import_pages
from shared.store.snapshot import load_shard

NOW = 1_700_000_000.0
URLS = ["https://a.example/bad", "https://a.example/good"]

COLUMNS = [
    {"crawled_at": np.array([NOW * 1000, NOW])},  # milliseconds by mistake
    {"crawled_at": np.array([NOW + 3600, NOW + 60])},
    {"crawled_at": np.array([-5.0, 0.0])},
    {"crawled_at": np.array([np.inf, -np.inf])},
    {"importance": np.array([1e13, 1e12])},
    {"importance": np.array([np.nan, 0.0])},
    {"max_age_days": np.array([2e6, 1e6])},
    {"max_age_days": np.array([0.0, np.inf])},
]


@pytest.mark.parametrize("column", COLUMNS)
def test_what_no_message_could_say_is_not_copied(migrated_url, column):
    report = import_pages(migrated_url, 4, [page_batch(URLS, **column)], now=NOW)
    assert (report.read, report.added, report.refused) == (2, 1, 1)
    assert report.reasons[0].startswith("row 1: importance")
    assert sum(load_shard(migrated_url, shard).pages.importance.size for shard in range(4)) == 1


@pytest.mark.parametrize("column", COLUMNS)
def test_nor_is_it_published_for_estimators_to_refuse(monkeypatch, column):
    sent = published_updates(monkeypatch, 4, NOW)
    rows = page_batch(URLS, **column)
    report = asyncio.run(page_updates.publish_rows(Settings(), [rows], lambda _: None))
    assert (report.read, report.added, report.refused) == (2, 1, 1)
    assert [update.url for update in sent] == URLS[1:]
