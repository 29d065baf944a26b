"""Records of one shard applied in memory: what is refused, what is added, what is learned."""

import json

import numpy as np
import pytest
from aiokafka import ConsumerRecord

from services.estimator.application import apply_records
from services.estimator.learning import learn, material_news
from services.estimator.shard import Shard
from shared.contracts.codec import decode, encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import (
    CrawlOutcome,
    HostLimit,
    HostParameters,
    PageParameters,
    PageSignal,
    PageUpdate,
)
from shared.runtime.acceptance import BUSY_HOST_SECONDS, Acceptance
from shared.store.page_status import NEVER, REDIRECTED

DAY = 86_400.0
NOW = 100 * DAY
SHARDS = 4
URL = "https://news.example/a"
HOST = "news.example"
HERE = shard_of(HOST, SHARDS)
ELSEWHERE = next(
    f"https://h{n}.example/" for n in range(99) if shard_of(f"h{n}.example", SHARDS) != HERE
)


def record(topic, value, offset=0, timestamp=1000):
    data = value if isinstance(value, bytes) or value is None else encode(value)
    return ConsumerRecord(topic, HERE, offset, timestamp, 0, None, data, None, -1, -1, ())


def rules(record_times_count=True):
    return Acceptance(NOW, NOW + 300.0, record_times_count)


def apply(shard, record_times_count=True, delay=0.0, **topics):
    records = {
        name.replace("_", "-"): [record(name.replace("_", "-"), m) for m in messages]
        for name, messages in topics.items()
    }
    return apply_records(shard, records, rules(record_times_count), delay)


def with_page(url=URL, **options):
    shard = Shard(HERE, Layout.of(SHARDS))
    apply(shard, page_updates=[PageUpdate("upsert", url, updated_at=0.0, **options)])
    return shard


def signal(url=URL, at=DAY, source="feed"):
    page = identify(url)
    return PageSignal(page.page_id, page.url, page.host, source, at)


def test_an_upsert_adds_a_page_with_its_host():
    shard = Shard(HERE, Layout.of(SHARDS))
    update = PageUpdate("upsert", "HTTPS://News.example:443/a#top", 2.0, 7.0, updated_at=5.0)
    done = apply(shard, page_updates=[update])
    assert (done.added.tolist(), done.added_urls, done.touched.size) == ([0], [URL], 0)
    page = shard.pages[0]
    assert page["page_id"] == identify(URL).page_id
    assert (page["importance"], page["max_age_days"], page["first_seen_at"]) == (2.0, 7.0, 5.0)
    assert page["last_crawled_at"] == NEVER
    assert (shard.hosts.names, done.hosts) == ([HOST], [0])


@pytest.mark.parametrize(("counts", "expected"), [(True, 1.0), (False, NOW)])
def test_an_update_without_a_time_counts_from_its_arrival(counts, expected):
    shard = Shard(HERE, Layout.of(SHARDS))
    apply(shard, counts, page_updates=[PageUpdate("upsert", URL)])
    assert shard.pages["first_seen_at"][0] == expected


def test_updates_of_one_batch_count_in_order_of_time():
    shard = Shard(HERE, Layout.of(SHARDS))
    done = apply(
        shard,
        page_updates=[
            PageUpdate("upsert", URL, 3.0, updated_at=9.0),
            PageUpdate("remove", URL, updated_at=5.0),
            PageUpdate("upsert", URL, 1.0, updated_at=1.0),
        ],
    )
    page = shard.pages[0]
    assert (page["status"], page["importance"], page["first_seen_at"]) == (0, 3.0, 1.0)
    assert len(shard.pages) == done.added.size == 1


def test_removing_an_unknown_page_does_nothing():
    shard = Shard(HERE, Layout.of(SHARDS))
    done = apply(shard, page_updates=[PageUpdate("remove", URL, updated_at=5.0)])
    assert (len(shard.pages), done.refused) == (0, [])


def test_outcomes_find_pages_under_other_spellings():
    shard = with_page()
    apply(shard, crawl_outcomes=[CrawlOutcome("https://NEWS.example/a#x", DAY, result="unchanged")])
    assert shard.pages["crawls"][0] == 1


def test_a_batch_is_applied_in_order_of_time():
    shard = with_page()
    done = apply(
        shard,
        crawl_outcomes=[
            CrawlOutcome(URL, 3 * DAY, result="changed"),
            CrawlOutcome(URL, 1 * DAY, result="unchanged"),
        ],
        page_signals=[signal(at=4 * DAY), signal(at=2 * DAY)],
    )
    assert done.observations.interval_days.tolist() == [2.0]
    assert done.observations.signals.tolist() == [1]
    assert shard.pages["signals"][0] == 1
    assert (done.touched.tolist(), done.learned.tolist()) == ([0], [0])


GOOD_TIME = {"url": URL, "crawled_at": DAY}
BAD_OUTCOMES = {
    "not a valid CrawlOutcome": [
        b"{",
        b"\xff",
        b"[]",
        b"null",
        b'{"url": 1, "crawled_at": 1, "result": "changed"}',
        json.dumps(GOOD_TIME | {"crawled_at": -1, "result": "changed"}).encode(),
        json.dumps(GOOD_TIME | {"crawled_at": float("nan"), "result": "changed"}).encode(),
        json.dumps(GOOD_TIME | {"crawled_at": float("inf"), "result": "changed"}).encode(),
        json.dumps(GOOD_TIME | {"result": "maybe"}).encode(),
        json.dumps(GOOD_TIME).encode(),
        json.dumps(GOOD_TIME | {"url": "", "result": "changed"}).encode(),
        b"[" * 10_000,
    ],
    "empty": [None],
    "bytes": [json.dumps({"url": "https://x/" + "a" * 1_000_000}).encode()],
    "future": [CrawlOutcome(URL, NOW + 1e6, result="changed")],
    "unknown page": [CrawlOutcome(URL + "/other", DAY, result="changed")],
    "only http": [CrawlOutcome("ftp://news.example/a", DAY, result="changed")],
    "absolute URL": [CrawlOutcome("no url", DAY, result="changed")],
    "credentials": [CrawlOutcome("https://u:p@news.example/a", DAY, result="changed")],
    "key the record by its host": [CrawlOutcome(ELSEWHERE, DAY, result="changed")],
    "to the page itself": [
        CrawlOutcome(URL, DAY, result="redirected", redirected_to=URL + "#top"),
        CrawlOutcome(URL, DAY, result="canonical", canonical_url="HTTPS://News.example:443/a"),
    ],
    "belongs to the result": [
        json.dumps(GOOD_TIME | {"result": "changed", "redirected_to": ELSEWHERE}).encode(),
        json.dumps(GOOD_TIME | {"digest": "d", "canonical_url": ELSEWHERE}).encode(),
        json.dumps(GOOD_TIME | {"result": "redirected", "canonical_url": ELSEWHERE}).encode(),
    ],
    "Expected `str` of length <= 2048": [
        json.dumps(GOOD_TIME | {"url": URL + "x" * 2049, "result": "changed"}).encode(),
    ],
}


@pytest.mark.parametrize(
    ("reason", "message"), [(r, m) for r, messages in BAD_OUTCOMES.items() for m in messages]
)
def test_bad_outcomes_are_refused_with_the_reason_and_change_nothing(reason, message):
    shard = with_page()
    before = shard.pages.tobytes()
    good = CrawlOutcome(URL, 2 * DAY, result="unchanged")
    done = apply(shard, crawl_outcomes=[message])
    assert [reason in letter.reason for letter in done.refused] == [True]
    assert shard.pages.tobytes() == before
    assert done.touched.size == done.added.size == len(done.hosts) == 0
    assert apply(shard, crawl_outcomes=[message, good]).touched.tolist() == [0]


@pytest.mark.parametrize(
    ("topic", "message"),
    [
        ("page_updates", PageUpdate("upsert", "gopher://news.example")),
        ("page_updates", PageUpdate("upsert", ELSEWHERE)),
        ("page_updates", PageUpdate("upsert", URL, updated_at=NOW * 2)),
        ("page_updates", PageUpdate("upsert", URL, crawled_at=NOW * 2)),
        ("page_updates", b'{"op": "upsert", "url": "https://news.example/", "importance": -1}'),
        ("page_signals", signal(ELSEWHERE)),
        ("page_signals", signal(at=NOW * 2)),
        ("page_signals", b'{"page_id": -1}'),
        ("host_limits", HostLimit(identify(ELSEWHERE).host)),
        ("host_limits", HostLimit(f"https://{HOST}/robots.txt", 0.0)),
        ("host_limits", b'{"host": "a", "max_crawls_per_second": -1}'),
    ],
)
def test_other_bad_messages_are_refused(topic, message):
    shard = with_page()
    before = shard.pages.tobytes()
    done = apply(shard, **{topic: [message]})
    assert len(done.refused) == 1
    assert shard.pages.tobytes() == before


def test_signals_of_unknown_pages_are_everyday():
    done = apply(with_page(), page_signals=[signal(URL + "/other")])
    assert (done.refused, done.touched.size) == ([], 0)


def test_busy_hosts_are_left_alone():
    shard = with_page()
    outcomes = [
        CrawlOutcome(URL, DAY, result="failed", http_status=429, retry_after_seconds=600.0),
        CrawlOutcome(URL, DAY + 1, result="failed", http_status=503),
    ]
    done = apply(shard, crawl_outcomes=outcomes)
    assert shard.hosts.records["asked_until"][0] == DAY + 600.0
    assert done.hosts == [0]
    assert shard.pages["failures"][0] == 2
    outcome = CrawlOutcome(URL, 2 * DAY, result="failed", http_status=503)
    apply(shard, crawl_outcomes=[outcome])
    assert shard.hosts.records["asked_until"][0] == 2 * DAY + BUSY_HOST_SECONDS


@pytest.mark.parametrize("target", [None, "mailto:you@news.example", "/b", ELSEWHERE, "x" * 2048])
def test_a_page_is_away_wherever_it_is_said_to_lead(target):
    shard = with_page()
    outcome = CrawlOutcome(URL, DAY, result="redirected", redirected_to=target)
    assert apply(shard, crawl_outcomes=[outcome]).refused == []
    assert shard.pages["status"][0] == REDIRECTED


def test_what_robots_txt_forbids_is_no_failure_of_the_host():
    shard = with_page()
    forbidden = [CrawlOutcome(URL, n * DAY, result="disallowed") for n in range(1, 10)]
    assert apply(shard, crawl_outcomes=forbidden).hosts == []
    assert shard.hosts.records["failures"][0] == 0
    # Nor does it say that a host is well which does not answer.
    apply(shard, crawl_outcomes=[CrawlOutcome(URL, 20 * DAY, result="failed")])
    apply(shard, crawl_outcomes=[CrawlOutcome(URL, 21 * DAY, result="disallowed")])
    assert shard.hosts.records["failures"][0] == 1
    asking = CrawlOutcome(URL, 22 * DAY, result="disallowed", retry_after_seconds=60.0)
    apply(shard, crawl_outcomes=[asking])
    assert shard.hosts.records["asked_until"][0] == 22 * DAY + 60.0


def test_not_modified_is_unchanged_and_keeps_the_digest():
    shards = [with_page(), with_page()]
    for shard, result in zip(shards, ("unchanged", "not_modified"), strict=True):
        apply(shard, crawl_outcomes=[CrawlOutcome(URL, DAY, digest="of the content")])
        outcome = CrawlOutcome(URL, 2 * DAY, result=result, http_status=304)
        learn(apply(shard, crawl_outcomes=[outcome]))
    assert shards[0].pages.tobytes() == shards[1].pages.tobytes()
    apply(shards[1], crawl_outcomes=[CrawlOutcome(URL, 3 * DAY, "", None, "not_modified", "empty")])
    apply(shards[1], crawl_outcomes=[CrawlOutcome(URL, 4 * DAY, digest="of the content")])
    assert (shards[1].pages["crawls"][0], shards[1].pages["changes"][0]) == (4, 0)


def test_the_last_host_limit_stands():
    shard = with_page()
    limits = [HostLimit(HOST, 2.0, DAY), HostLimit(f"{HOST.upper()}:443", 5.0)]
    done = apply(shard, host_limits=limits)
    host = shard.hosts.records[0]
    assert (host["max_crawls_per_second"], host["blocked_until"]) == (5.0, NEVER)
    assert done.hosts == [0]
    apply(shard, host_limits=[HostLimit(HOST)])
    assert np.isnan(shard.hosts.records["max_crawls_per_second"][0])


def crawl_often(shard, url, changed_every, crawls=20):
    outcomes = [
        CrawlOutcome(url, day * DAY, result="unchanged" if day % changed_every else "changed")
        for day in range(1, crawls + 1)
    ]
    done = apply(shard, crawl_outcomes=outcomes)
    learn(done)
    return done


def test_learning_tells_busy_pages_from_quiet_ones():
    shard = with_page(URL)
    apply(shard, page_updates=[PageUpdate("upsert", URL + "/b", updated_at=0.0)])
    crawl_often(shard, URL, changed_every=1)
    crawl_often(shard, URL + "/b", changed_every=10)
    busy, quiet = shard.pages["unsignalled_change_rate"] * shard.rings.multiplier[:2]
    assert busy > 0.3
    assert 0 < quiet < 0.2 * busy
    assert shard.pages["signal_rate"].tolist() == [0.0, 0.0]


def test_the_signal_rate_is_signals_over_time():
    shard = with_page()
    learn(apply(shard, page_signals=[signal(at=day * DAY) for day in range(1, 11)]))
    assert shard.pages["signal_rate"][0] == pytest.approx(10.5 / 10.5)


def test_pages_without_a_crawl_record_have_no_parameters_of_their_own():
    shard = Shard(HERE, Layout.of(SHARDS))
    update = PageUpdate("upsert", URL, updated_at=0.0)
    outcome = CrawlOutcome(URL, DAY, result="changed")
    done = apply(shard, page_updates=[update], crawl_outcomes=[outcome])
    learn(done)
    assert np.isnan(shard.pages["unsignalled_change_rate"][0])
    assert np.isnan(shard.pages["signal_evidence"][0])
    assert material_news(done, 0.05, NOW).pages == []
    assert material_news(done, 0.05, NOW).hosts == [], "the schedulers know the initial prior"


def test_a_signal_to_a_page_without_a_record_announces_its_rate_alone():
    shard = with_page()
    done = apply(shard, page_signals=[signal(at=10 * DAY)])
    learn(done)
    [(_, value)] = material_news(done, 0.05, NOW).pages
    sent = decode(PageParameters, value)
    assert (sent.unsignalled_change_rate, sent.signal_evidence) == (None, None)
    assert sent.signal_rate == pytest.approx(1.5 / 10.5)


def test_material_changes_are_announced_once():
    shard = with_page()
    done = crawl_often(shard, URL, changed_every=4, crawls=16)
    [(key, value)] = material_news(done, 0.05, NOW).pages
    assert key == HOST.encode()
    sent = decode(PageParameters, value)
    assert sent.page_id == identify(URL).page_id
    assert sent.unsignalled_change_rate == shard.pages["unsignalled_change_rate"][0]
    done = apply(shard, crawl_outcomes=[CrawlOutcome(URL, 16 * DAY + 60, result="unchanged")])
    learn(done)
    assert material_news(done, 0.05, NOW).pages == []
    done = apply(shard, crawl_outcomes=[CrawlOutcome(URL, 40 * DAY, result="unchanged")])
    learn(done)
    assert len(material_news(done, 0.05, NOW).pages) == 1
    assert material_news(done, 0.05, NOW).pages == []


def test_the_first_sources_of_a_host_have_slots_of_their_own():
    shard = with_page()
    names = ["feed", "push", "feed", "crawl", "spam", "more", "push"]
    done = apply(shard, page_signals=[signal(at=d * DAY, source=n) for d, n in enumerate(names, 1)])
    assert shard.hosts.sources == [["feed", "push", "crawl"]]
    assert shard.rings.totals[0].tolist() == [2, 2, 1, 2]
    assert (done.new_sources, done.counted_hosts.tolist()) == ({0}, [0])
    again = apply(shard, page_signals=[signal(at=30 * DAY, source="crawl")])
    assert (again.new_sources, again.counted_hosts.tolist()) == (set(), [0])


def test_signals_of_unknown_pages_take_no_slot():
    shard = with_page()
    apply(shard, page_signals=[signal(URL + "/other", source="spam")])
    assert shard.hosts.sources == [[]]


def test_a_new_source_and_bursts_are_announced_of_the_host():
    shard = with_page()
    done = apply(shard, page_signals=[signal()])
    learn(done)
    [(key, value)] = material_news(done, 0.05, NOW).hosts
    sent = decode(HostParameters, value)
    assert (key, sent.host, sent.sources) == (HOST.encode(), HOST, ["feed"])
    assert sent.unsignalled_change_rate == pytest.approx(1 / 60)
    assert sent.signal_evidence == pytest.approx(np.log(2))
    assert sent.source_evidence == pytest.approx([np.log(2)] * 4)
    assert sent.burst_multipliers == [1.0] * 6
    assert material_news(done, 0.05, NOW).hosts == [] or done.new_sources
    shard.hosts.tables.signals[0, 0] = 100.0
    done = crawl_often(shard, URL, changed_every=1, crawls=12)
    [(_, value)] = material_news(done, 0.05, NOW).hosts
    assert decode(HostParameters, value).burst_multipliers[1] > 1.5
    done = apply(shard, crawl_outcomes=[CrawlOutcome(URL, 12 * DAY + 1, result="unchanged")])
    assert material_news(done, 0.05, NOW).hosts == []


def test_a_useless_source_learns_to_be_one_and_a_good_one_to_be_good():
    shard = with_page()
    for day in range(2, 60):
        changed = day % 3 == 0
        sources = ["spam", *(["feed"] if changed else [])]
        apply(
            shard,
            page_signals=[
                signal(at=(day - 0.5 + i / 9) * DAY, source=s) for i, s in enumerate(sources)
            ],
        )
        result = "changed" if changed else "unchanged"
        done = apply(shard, crawl_outcomes=[CrawlOutcome(URL, day * DAY, result=result)])
        learn(done)
    spam, feed, *_ = shard.rings.evidence[0]
    assert spam < 0.1
    assert feed > 1.0
    assert spam < shard.pages["signal_evidence"][0] < feed


def test_removed_pages_are_not_announced():
    shard = Shard(HERE, Layout.of(SHARDS))
    updates = [PageUpdate("upsert", URL, updated_at=0.0), PageUpdate("remove", URL, updated_at=1.0)]
    done = apply(shard, page_updates=updates)
    learn(done)
    assert material_news(done, 0.05, NOW).pages == []
