"""Compiles everything before the worker says that it is there, instead of in the first batch."""

from aiokafka import ConsumerRecord
from msgspec import Struct

from services.estimator.application import apply_records
from services.estimator.learning import learn, material_news
from services.estimator.refitting import refit
from services.estimator.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, PageSignal, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, Topic
from shared.runtime.acceptance import Acceptance
from shared.units import SECONDS_PER_DAY as DAY


def warm_up() -> int:
    """Take a small shard through all that can happen; some seconds once, then cached on disk.

    Returns:
        how many pages were fitted on the way.
    """
    shard = Shard(0)
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
    done = apply_records(shard, batch, Acceptance(1, 4 * DAY, 4 * DAY, False), 0.0)
    learn(done)
    refit([shard], 0.05)
    material_news(done, 0.05, 4 * DAY)
    return int(done.learned.size)


def _record(topic: Topic, message: Struct) -> ConsumerRecord:
    return ConsumerRecord(topic.name, 0, 0, 0, 0, None, encode(message), None, -1, -1, ())
