"""Compiles everything before the worker says that it is there, instead of in the first batch."""

from typing import Final

import numpy as np
from aiokafka import ConsumerRecord
from msgspec import Struct

from services.estimator.application import ShardEffects, apply_records
from services.estimator.learning import learn, material_news
from services.estimator.refitting import refit
from services.estimator.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, identify
from shared.contracts.messages import CrawlOutcome, PageSignal, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, Topic
from shared.runtime.acceptance import Acceptance
from shared.store.history import pack
from shared.store.page_parts import UrlsOfPart
from shared.units import SECONDS_PER_DAY as DAY

_MANY: Final = 200
"""Pages: more than the first table of them has room for."""


def warm_up() -> int:
    """Take a small shard through all that can happen; some seconds once, then cached on disk.

    Returns:
        how many pages were fitted on the way.
    """
    shard = Shard(0)
    # Pages that come later are looked up in another way than those that were there first.
    for number in range(_MANY):
        update = PageUpdate("upsert", f"http://warm.example/{number}", updated_at=DAY)
        _apply(shard, {PAGE_UPDATES.name: [_record(PAGE_UPDATES, update)]})
    page = identify("http://warm.example/")
    signal = PageSignal(page.page_id, page.url, page.host, "warm", 1.5 * DAY)
    batch = {
        PAGE_UPDATES.name: [
            _record(PAGE_UPDATES, PageUpdate("upsert", page.url, crawled_at=DAY, updated_at=DAY))
        ],
        PAGE_SIGNALS.name: [_record(PAGE_SIGNALS, signal)],
        CRAWL_OUTCOMES.name: [
            _record(CRAWL_OUTCOMES, CrawlOutcome(page.url, 2 * DAY, result="unchanged")),
            _record(CRAWL_OUTCOMES, CrawlOutcome(page.url, 3 * DAY, result="changed")),
        ],
    }
    done = _apply(shard, batch)
    learn(done)
    refit([shard], 0.05)
    material_news(done, 0.05, 4 * DAY)
    pack(shard.rings, done.learned)
    _load([page])
    return int(done.learned.size)


def _load(pages: list[PageIdentity]) -> None:
    """URLs as they come from the store."""
    ids = np.array([page.page_id for page in pages], np.int64)
    stored = "".join(f"{page.url}\n" for page in pages).encode()
    UrlsOfPart.of(0, ids, stored)


def _apply(shard: Shard, batch: dict[str, list[ConsumerRecord]]) -> ShardEffects:
    return apply_records(shard, batch, Acceptance(4 * DAY, 4 * DAY, False), 0.0)


def _record(topic: Topic, message: Struct) -> ConsumerRecord:
    return ConsumerRecord(topic.name, 0, 0, 0, 0, None, encode(message), None, -1, -1, ())
