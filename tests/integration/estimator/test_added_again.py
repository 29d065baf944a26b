"""Pages that were removed and are added again: new ones, whichever way they come."""

import numpy as np
import psycopg
import pytest
from estimator_world import DAY, NOW, SHARDS, crawl, signal, upsert
from page_batches import page_batch
from psycopg.rows import dict_row

from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.store.binary import Blobs
from shared.store.history import unpack
from shared.store.imports import import_pages

BY_MESSAGE, BY_IMPORT = "https://host-1.example/a", "https://host-1.example/b"
BOTH = (BY_MESSAGE, BY_IMPORT)
AGAIN = NOW + 9 * DAY


def stored(settings, url):
    """All that the database has of a page, but which it is."""
    with psycopg.connect(settings.database_url.get_secret_value(), row_factory=dict_row) as found:
        query = "SELECT * FROM pages WHERE page_id = %s"
        row = found.execute(query, (identify(url).page_id,)).fetchone()
    history = np.frombuffer(row.pop("history"), np.uint8)
    rings = unpack(Blobs(history, np.array([0, history.size])))
    row |= {f"history's {name}": column.tolist() for name, column in rings._asdict().items()}
    del row["page_id"]
    return row


@pytest.mark.parametrize("copied_at", [None, NOW + 8 * DAY])
async def test_a_page_that_was_removed_is_the_same_by_message_and_by_import(
    settings, start, kafka, copied_at
):
    handler = await start(kafka)
    life = [
        [upsert(url, page_class="news", urgent=True, max_age_days=3.0) for url in BOTH],
        [crawl(url, NOW + day * DAY, "changed") for day in (1, 2, 3) for url in BOTH],
        [signal(url, NOW + day * DAY, f"source {day}") for day in (2.5, 4, 5) for url in BOTH],
        [crawl(url, NOW + 6 * DAY, "failed") for url in BOTH],
        [upsert(url, NOW + 6.5 * DAY, urgent=True) for url in BOTH],
        [PageUpdate("remove", url, updated_at=NOW + 7 * DAY) for url in BOTH],
    ]
    for messages in life:
        await handler.handle(kafka.batch(*messages))
    assert stored(settings, BY_MESSAGE) == stored(settings, BY_IMPORT)
    rate = stored(settings, BY_MESSAGE)["signal_rate"]
    again = upsert(BY_MESSAGE, AGAIN, importance=2.0, crawled_at=copied_at)
    await handler.handle(kafka.batch(again))
    await handler.close()
    batch = page_batch(
        [BY_IMPORT],
        importance=np.array([2.0]),
        crawled_at=np.array([-np.inf if copied_at is None else copied_at]),
    )
    url = settings.database_url.get_secret_value()
    assert import_pages(url, SHARDS, [batch], now=AGAIN).updated == 1
    by_import, by_message = stored(settings, BY_IMPORT), stored(settings, BY_MESSAGE)
    # Whatever copy there is: of the days between nobody knows whether signals would have come.
    assert by_message["signal_rate"] == rate > 0.0
    assert by_import == by_message
