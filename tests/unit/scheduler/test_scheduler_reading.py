"""Records of every topic, good and bad, as they come from Kafka."""

from types import SimpleNamespace

import msgspec
import pytest
from reference_shard import DAY, NEVER, PageView, rules
from twin_hosts import HOST, TWIN

from services.scheduler.flow.reader import TOPIC_ORDER, Reader
from services.scheduler.picking.calendar import make_shard
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.layout import ALONE, Layout
from shared.contracts.messages import (
    CrawlOutcome,
    HostLimit,
    HostParameters,
    PageParameters,
    PageSignal,
    PageUpdate,
)
from shared.contracts.request_ids import microseconds, request_id_of
from shared.runtime.acceptance import Acceptance

NOW = 1.7e9
PAGE = identify("https://a.example/caf%C3%A9?q=1")

BAD = [None, b"", b"not json", b"[]", b"{}", b'{"page_id": NaN}', b"\xff\xfe", b'"' + b"x" * 70_000]


def record(message, key=b"a.example", timestamp=int(NOW * 1000)):
    value = encode(message) if isinstance(message, msgspec.Struct) else message
    return SimpleNamespace(value=value, key=key, timestamp=timestamp, offset=0, topic="t")


@pytest.fixture
def shard():
    shard = make_shard(0, rules(host_rate=2.0))
    shard.upsert(PAGE, PageUpdate("upsert", PAGE.url, crawled_at=NOW - DAY), NOW - DAY)
    return shard


def row_of(shard, identity=PAGE):
    return PageView(shard, identity.page_id)


def read(shard, topic, *messages, record_times_count=True):
    reader = Reader(Acceptance(NOW + 5, NOW + 300, record_times_count))
    reader.apply(shard, topic, [record(message) for message in messages])
    return reader


@pytest.mark.parametrize("topic", TOPIC_ORDER)
def test_bad_records_do_no_harm_and_the_good_ones_count(shard, topic):
    good = {
        "page-updates": PageUpdate("upsert", PAGE.url, importance=7.0),
        "host-limits": HostLimit(PAGE.host, 3.0),
        "page-parameters": PageParameters(PAGE.page_id, PAGE.host, 0.5, 1.0, 2.0, NOW),
        "host-parameters": HostParameters(PAGE.host, 0.7, 0.9, [], [0.9] * 4, [1.0] * 6, NOW),
        "crawl-outcomes": CrawlOutcome(PAGE.url, NOW, result="failed"),
        "page-signals": PageSignal(PAGE.page_id, PAGE.url, PAGE.host, "s", NOW),
    }[topic]
    reader = read(shard, topic, *BAD[1:], good, *BAD[1:])
    row, host = row_of(shard), shard.host_rows[0]
    seen = {
        "page-updates": row["importance"] == 7.0,
        "host-limits": host["rate"] == 3.0,
        "host-parameters": (row["alpha"], row["kappa"]) == (0.7, 0.9),
        "page-parameters": (row["alpha"], row["kappa"], row["gamma"]) == (0.5, 1.0, 2.0),
        "crawl-outcomes": row["failures"] == 1,
        "page-signals": row["signals"] == 1,
    }
    assert seen[topic]
    assert len(reader.refused) == (2 * len(BAD[1:]) if topic.endswith("-parameters") else 0)


def page_parameters(alpha, **options):
    return PageParameters(PAGE.page_id, PAGE.host, alpha, 1.0, 2.0, NOW, **options)


def host_parameters(alpha, **options):
    return HostParameters(PAGE.host, alpha, 0.9, [], [0.9] * 4, [1.0] * 6, NOW, **options)


def test_what_a_replaced_estimator_announces_is_left_out(shard):
    read(shard, "page-parameters", page_parameters(0.5, epoch=7), page_parameters(0.1, epoch=6))
    assert row_of(shard)["alpha"] == 0.5
    read(shard, "page-parameters", page_parameters(0.2, epoch=6), page_parameters(0.25, epoch=8))
    assert row_of(shard)["alpha"] == 0.25
    read(shard, "page-parameters", page_parameters(0.5, epoch=7))
    assert row_of(shard)["alpha"] == 0.25


def test_what_the_loaded_shard_knows_already_is_left_out(shard):
    shard.loaded_epoch = 7
    read(shard, "host-parameters", host_parameters(0.5, epoch=6))
    assert row_of(shard)["alpha"] != 0.5
    read(shard, "host-parameters", host_parameters(0.5, epoch=7))
    assert row_of(shard)["alpha"] == 0.5


def test_news_of_a_new_owner_on_one_topic_do_not_hide_what_the_old_one_said_on_another(shard):
    read(shard, "host-parameters", host_parameters(0.75, epoch=7))
    read(shard, "page-parameters", page_parameters(0.5, epoch=6))
    assert row_of(shard)["alpha"] == 0.5


def test_an_estimator_that_says_no_epoch_counts(shard):
    read(shard, "page-parameters", page_parameters(0.5, epoch=7), page_parameters(0.25))
    assert row_of(shard)["alpha"] == 0.25


def test_an_empty_parameter_message_is_refused_with_a_reason(shard):
    refused = read(shard, "page-parameters", None).refused
    assert "empty" in refused[0].reason


def test_urls_of_outcomes_need_not_be_canonical(shard):
    read(shard, "crawl-outcomes", CrawlOutcome("HTTPS://A.example:443/café?q=1#x", NOW, digest="d"))
    assert row_of(shard)["last_crawled_at"] == NOW


def test_an_outcome_of_no_page_at_all_is_left_out(shard):
    read(shard, "crawl-outcomes", CrawlOutcome("mailto:me", NOW, result="changed", http_status=429))
    assert row_of(shard)["last_crawled_at"] == NOW - DAY


def test_an_outcome_with_its_requests_id_answers_it(shard):
    row = row_of(shard)
    row["deadline"], row["requested_us"] = NOW + 60, microseconds(NOW)
    request_id = request_id_of(0, PAGE.page_id, microseconds(NOW))
    outcome = CrawlOutcome(PAGE.url, NOW - 1, request_id=request_id, result="unchanged")
    read(shard, "crawl-outcomes", outcome)
    assert row["deadline"] == NEVER


@pytest.mark.parametrize(
    ("outcome", "until"),
    [
        (CrawlOutcome(PAGE.url, NOW, result="failed", http_status=503), NOW + 60),
        (CrawlOutcome(PAGE.url, NOW, result="failed", http_status=429), NOW + 60),
        (
            CrawlOutcome(
                PAGE.url, NOW, result="failed", http_status=429, retry_after_seconds=900.0
            ),
            NOW + 900,
        ),
        (CrawlOutcome(PAGE.url, NOW, result="failed", http_status=500), NEVER),
        (
            CrawlOutcome(
                "https://a.example/unknown", NOW, "a.example", result="failed", http_status=503
            ),
            NOW + 60,
        ),
    ],
)
def test_a_host_that_asks_for_a_pause_gets_it(shard, outcome, until):
    read(shard, "crawl-outcomes", outcome)
    assert shard.host_rows[0]["blocked_until"] == until


def test_a_shorter_pause_does_not_cut_a_longer_one(shard):
    read(
        shard,
        "crawl-outcomes",
        CrawlOutcome(PAGE.url, NOW, result="failed", retry_after_seconds=900.0),
        CrawlOutcome(PAGE.url, NOW + 1, result="failed", http_status=503),
    )
    assert shard.host_rows[0]["blocked_until"] == NOW + 900


def test_the_last_limit_of_a_host_stands_and_a_tombstone_ends_it(shard):
    host = shard.host_rows[0]
    read(shard, "host-limits", HostLimit(PAGE.host, 0.5, NOW + 99), HostLimit("A.example:443", 9.0))
    read(shard, "host-limits", HostLimit("https://a.example/robots.txt", 3.0))  # is none
    assert (host["rate"], host["blocked_until"], host["own_limit"]) == (9.0, NEVER, 1)
    Reader(Acceptance(NOW, NOW, True)).apply(shard, "host-limits", [record(None, b"a.example")])
    assert (host["rate"], host["own_limit"]) == (2.0, 0)


@pytest.mark.parametrize(("counts", "expected"), [(True, NOW), (False, NOW + 5)])
def test_updates_without_a_time_are_of_their_arrival(shard, counts, expected):
    read(shard, "page-updates", PageUpdate("upsert", PAGE.url), record_times_count=counts)
    assert row_of(shard)["updated_at"] == expected


def test_updates_of_a_batch_are_applied_in_order_of_time(shard):
    read(
        shard,
        "page-updates",
        PageUpdate("upsert", PAGE.url, importance=2.0, updated_at=NOW + 2),
        PageUpdate("remove", PAGE.url, updated_at=NOW + 1),
        PageUpdate("upsert", "https://a.example/new", max_age_days=3.0, updated_at=NOW),
        PageUpdate("upsert", "ftp://a.example/no", updated_at=NOW),
    )
    assert shard.count == 2
    assert row_of(shard)["importance"] == 2.0
    assert row_of(shard)["last_crawled_at"] == NEVER
    assert row_of(shard, identify("https://a.example/new"))["max_age"] == 3.0 * DAY


def test_answers_to_shards_that_came_of_this_one_are_counted():
    """Crawlers that do not know of the split yet send them here; an estimator passes them on."""
    layout = Layout(2, 1, frozenset({0}))
    pages = [identify(f"http://h{number}.example/") for number in range(8)]
    others = [page for page in pages if layout.shard_of(page.host)]
    assert 0 < len(others) < len(pages)
    answers = [
        CrawlOutcome(page.url, NOW, request_id="0-1-2", result="unchanged") for page in pages
    ]
    unasked = [CrawlOutcome(page.url, NOW, result="unchanged") for page in pages]
    for known, count in ((layout, len(others)), (Layout(2, 1, frozenset()), 0), (ALONE, 0)):
        shard = make_shard(0, rules())
        shard.layout = known
        read(shard, "crawl-outcomes", *answers, *unasked)
        assert shard.notes.answers == (0, count)


def test_a_host_that_has_the_id_of_another_one_is_none(shard):
    page, other = identify(f"https://{HOST}/1"), identify(f"https://{TWIN}/1")
    updates = [PageUpdate("upsert", one.url, updated_at=NOW) for one in (page, other)]
    read(shard, "page-updates", *updates)
    read(shard, "host-limits", HostLimit(HOST, 0.5), HostLimit(TWIN, 9.0, NOW + DAY))
    assert shard.row_of(page.page_id) >= 0
    assert shard.row_of(other.page_id) < 0
    host = shard.host_rows[shard.pages[shard.row_of(page.page_id)]["host"]]
    assert (host["rate"], host["blocked_until"]) == (0.5, NEVER)
    assert list(shard.hosts.names) == [PAGE.host, HOST]
