"""Well-formed messages that must not stop a worker, nor make a shard differ from Postgres.

The estimator and the scheduler read the same topics; what the one refuses, the other must not act
upon, or a page is crawled that nobody has, or never again until a restart.
"""

from collections.abc import Callable

import pytest
from aiokafka import ConsumerRecord

from services.estimator.application import ShardEffects, apply_records
from services.estimator.shard import Shard as LearningShard
from services.scheduler.flow.reader import Reader
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rules import PickingRules, ShardRules
from services.scheduler.state.shard import Shard
from shared.contracts.codec import BadMessage, decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import (
    Allotment,
    Bandwidth,
    CrawlOutcome,
    HostLimit,
    Multipliers,
    PageSignal,
    PageUpdate,
)
from shared.runtime.acceptance import Acceptance

SHARDS = 4
DAY = 86_400.0
NOW = 20_000 * DAY
FAR_FUTURE = 9e10
ACCEPTANCE = Acceptance(NOW, NOW + 300.0, record_times_count=False)
URL = "https://news.example/a"
PAGE = identify(URL)
HERE = shard_of(PAGE.host, SHARDS)
ELSEWHERE = next(
    f"https://h{n}.example/" for n in range(99) if shard_of(f"h{n}.example", SHARDS) != HERE
)


def record(topic: str, message: object) -> ConsumerRecord:
    value = message if isinstance(message, bytes) or message is None else encode(message)
    return ConsumerRecord(topic, HERE, 0, 1000, 0, b"news.example", value, None, -1, -1, ())


def tell_estimator(topic: str, *messages: object) -> tuple[LearningShard, ShardEffects]:
    shard = LearningShard(HERE, Layout.of(SHARDS))
    known = PageUpdate("upsert", URL, updated_at=NOW - DAY, crawled_at=NOW - DAY)

    apply_records(shard, {"page-updates": [record("page-updates", known)]}, ACCEPTANCE, 0.0)
    return shard, apply_records(
        shard, {topic: [record(topic, m) for m in messages]}, ACCEPTANCE, 0.0
    )


def tell_scheduler(topic: str, *messages: object) -> Shard:
    rules = ShardRules(
        picking=PickingRules(request_timeout=120.0, speed=1.0),
        signal_delay=0.0,
        failed_retry=300.0,
        default_max_age_days=float("inf"),
        default_host_rate=1.0,
    )
    shard = make_shard(HERE, rules)
    shard.layout = Layout.of(SHARDS)
    shard.upsert(PAGE, PageUpdate("upsert", URL, crawled_at=NOW - DAY), NOW - DAY)
    Reader(ACCEPTANCE).apply(shard, topic, [record(topic, m) for m in messages])
    return shard


def signal_with_id(page_id: int) -> PageSignal:
    return PageSignal(page_id, URL, PAGE.host, "s", NOW)


@pytest.mark.parametrize("tell", [tell_estimator, tell_scheduler])
@pytest.mark.parametrize("page_id", [1 << 63, 10**30])
def test_a_page_id_that_no_page_has_is_refused(tell: Callable[..., object], page_id: int) -> None:
    tell("page-signals", signal_with_id(page_id))


def test_a_budget_that_nobody_could_spend_is_refused() -> None:
    with pytest.raises(BadMessage):
        decode(Bandwidth, b'{"crawls_per_second": 1e9}')


def test_a_version_that_the_database_cannot_hold_is_refused() -> None:
    message = Multipliers(10**30, NOW, NOW, 1.0, 1.0, 0.0, [Allotment(0, 1.0)])

    with pytest.raises(BadMessage):
        decode(Multipliers, encode(message))


def test_a_host_that_the_database_cannot_hold_is_refused() -> None:
    host = next(f"a{n}\x00" for n in range(99) if shard_of(f"a{n}\x00", SHARDS) == HERE)

    shard, done = tell_estimator("host-limits", HostLimit(host, 1.0))

    assert len(done.refused) == 1
    assert host not in shard.hosts.names


def test_a_removed_host_limit_is_the_default_again() -> None:
    shard, done = tell_estimator("host-limits", HostLimit(PAGE.host, 9.0), None)

    assert done.refused == []
    assert shard.hosts.records["max_crawls_per_second"][0] != 9.0


def test_a_crawl_in_the_far_future_does_not_keep_a_page_from_being_crawled() -> None:
    shard = tell_scheduler("crawl-outcomes", CrawlOutcome(URL, FAR_FUTURE, result="unchanged"))

    assert shard.pages[shard.row_of(PAGE.page_id)]["last_crawled_at"] == NOW - DAY


def test_a_host_is_not_left_alone_from_a_time_in_the_far_future_on() -> None:
    busy = CrawlOutcome(URL, FAR_FUTURE, result="failed", http_status=429)

    shard = tell_scheduler("crawl-outcomes", busy)

    assert shard.host_rows[0]["blocked_until"] < NOW


def test_a_signal_in_the_far_future_does_not_hide_those_that_follow() -> None:
    late = PageSignal(PAGE.page_id, URL, PAGE.host, "s", FAR_FUTURE)

    shard = tell_scheduler("page-signals", late, signal_with_id(PAGE.page_id))

    assert shard.pages[shard.row_of(PAGE.page_id)]["signals"] == 1
    assert shard.signal_times.of(shard.row_of(PAGE.page_id)) == NOW


@pytest.mark.parametrize(
    "update",
    [
        PageUpdate("upsert", ELSEWHERE, updated_at=NOW),
        PageUpdate("upsert", "https://news.example/b", updated_at=FAR_FUTURE),
        PageUpdate("upsert", "https://news.example/b", updated_at=NOW, crawled_at=FAR_FUTURE),
    ],
    ids=["of another shard", "far future", "crawled in the far future"],
)
def test_the_scheduler_adds_no_page_that_the_estimator_refuses(update: PageUpdate) -> None:
    _, done = tell_estimator("page-updates", update)

    shard = tell_scheduler("page-updates", update)

    assert len(done.refused) == 1
    assert shard.count == 1


def test_a_removal_in_the_far_future_forgets_no_page() -> None:
    shard = tell_scheduler("page-updates", PageUpdate("remove", URL, updated_at=FAR_FUTURE))

    assert shard.count == 1
