"""Pages to be imported, as most tests want them, and what is published of them."""

import numpy as np
import pyarrow as pa
from taken_messages import Taken, publish_by

from services.cli import page_updates
from shared.contracts.codec import decode
from shared.contracts.messages import PageUpdate
from shared.store.import_rows import PageBatch
from shared.store.page_status import NEVER


def page_batch(urls, **columns):
    """Pages of equal importance, without a bound and never crawled, but for some `columns`."""
    count = len(urls)
    defaults = {
        "importance": np.ones(count),
        "max_age_days": np.full(count, np.inf),
        "crawled_at": np.full(count, NEVER),
    }
    return PageBatch(pa.array(urls, pa.string()), **(defaults | columns))


def published_updates(monkeypatch, shards, now):
    """The page updates that an import sends from now on, to no broker, at a time."""
    sent = []

    async def asked(_settings): ...

    class Publisher(Taken):
        async def partitions_of(self, _topic):
            return shards

        async def queue_batches(self, messages):
            sent.extend(
                decode(PageUpdate, value) for part in messages.values() for _, value in part
            )

    monkeypatch.setattr(page_updates, "go_by_broker", asked)
    publish_by(monkeypatch, Publisher)
    monkeypatch.setattr("shared.runtime.clock.SystemClock.now", lambda _: now)
    return sent
