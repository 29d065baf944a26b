"""One stream of records through the scheduler and the estimator: of what both keep, both have the
same, whatever comes late, twice, out of order, or about nobody."""

import math

import numpy as np
import pytest
from aiokafka import ConsumerRecord
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from services.estimator.application import apply_records
from services.estimator.shard import Shard as EstimatorShard
from services.scheduler.flow.reader import TOPIC_ORDER, Reader
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state import events
from services.scheduler.state.attempts import last_attempt_of
from services.scheduler.state.packing import days_since_change, update_steps, updated_steps_of
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import (
    CrawlOutcome,
    HostLimit,
    HostParameters,
    PageSignal,
    PageUpdate,
)
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.rules.page_events import retry_time
from shared.runtime.acceptance import Acceptance
from shared.store.history import SOURCES
from shared.store.models import NEVER, REMOVED
from shared.store.source_times import time_of_source

START = 1.7e9
DAY = 86_400.0
RETRY = 300.0
RATE = 1.0
HOSTS = ("a.example", "b.example")
URLS = tuple(f"https://{host}/{path}" for host in HOSTS for path in ("x", "y"))
STRANGERS = (f"https://{HOSTS[0]}/never-added", "https://nobody.example/x")
SOURCES_OF = {HOSTS[0]: ["feed", "map", "hub"], HOSTS[1]: ["y", "feed", "x"]}
ACCEPTED = Acceptance(1, START + 40 * DAY, START + 40 * DAY, True)

# Few different ones, so that equal times and late events are everyday.
steps = st.integers(0, 12).map(lambda step: START + 600.0 * step)
quarters = st.integers(0, 24).map(lambda step: START + 0.25 * step)
# Few of these: what comes after is late.
days = st.sampled_from([START + days * DAY for days in (1, 30, 31, 39)])
times = st.integers(0, 14).flatmap(lambda kind: days if kind == 14 else (steps, quarters)[kind % 2])
urls = st.sampled_from(URLS[:1] * 8 + URLS * 2 + STRANGERS)
maybe = st.none()


def signal_of(url, observed_at, source):
    page = identify(url)
    return PageSignal(page.page_id, page.url, page.host, source, observed_at)


signals = st.builds(signal_of, urls, times, st.sampled_from(["feed", "map", "hub", "x", "y"]))
outcomes = st.builds(
    CrawlOutcome,
    url=urls,
    crawled_at=times,
    host=st.sampled_from(["", *HOSTS]),
    result=st.sampled_from(["changed", "unchanged", "gone", "failed"]),
    digest=maybe | st.sampled_from(["one", "two"]),
    http_status=maybe | st.just(429),
    retry_after_seconds=maybe | st.sampled_from([50.0, 5000.0]),
) | st.builds(
    CrawlOutcome, url=urls, crawled_at=times, digest=st.sampled_from(["one", "two", "three"])
)
updates = st.builds(
    PageUpdate,
    op=st.sampled_from(["upsert"] * 4 + ["remove"]),
    url=urls.filter(lambda url: url != STRANGERS[1]),
    importance=maybe | st.sampled_from([0.0, 0.5, 7.0]),
    max_age_days=maybe | st.sampled_from([0.5, 3.0]),
    updated_at=times,
    crawled_at=maybe | times,
)
limits = st.builds(
    HostLimit,
    st.sampled_from([*HOSTS, "only-limited.example"]),
    maybe | st.sampled_from([0.0, 0.25, 9.0]),
    maybe | times,
)
KINDS = {
    PAGE_SIGNALS.name: signals,
    CRAWL_OUTCOMES.name: outcomes,
    PAGE_UPDATES.name: updates,
    HOST_LIMITS.name: limits,
}
OFTEN = [PAGE_SIGNALS.name] * 3 + [CRAWL_OUTCOMES.name] * 4 + [PAGE_UPDATES.name] * 3
streams = st.lists(
    st.sampled_from([None, *OFTEN, HOST_LIMITS.name]).flatmap(
        lambda topic: st.tuples(st.just(topic), KINDS[topic]) if topic else st.none()
    ),
    min_size=20,
    max_size=40,
)


def later(item, seconds):
    """The same (topic, message), as much later."""
    topic, message = item
    named = ("observed_at", "crawled_at", "updated_at", "blocked_until")
    said = {name: getattr(message, name, None) for name in named}
    moved = {name: time + seconds for name, time in said.items() if time is not None}
    return topic, replace(message, **moved)


WEIGHTS = np.array([2.0, 0.5, 1.0, 0.25])
KNOWN = [(PAGE_UPDATES.name, PageUpdate("upsert", url, updated_at=START)) for url in URLS[:-1]]


class BothSides:
    """A scheduler's and an estimator's shard, to which the same happens."""

    def __init__(self, delay):
        rules = ShardRules(PickingRules(120.0, 1.0), delay, RETRY, math.inf, RATE)
        self.delay = delay
        self.mine = make_shard(0, rules)
        self.theirs = EstimatorShard(0)
        # Of each host the sources come in another order; the last slot is for all others.
        self.mine.host_parameters(
            [
                HostParameters(host, 0.1, 0.5, names, (0.5 * WEIGHTS).tolist(), [1.0] * 6, START)
                for host, names in SOURCES_OF.items()
            ]
        )
        for host, names in SOURCES_OF.items():
            number = self.theirs.hosts.row_or_new(host)
            self.theirs.hosts.slots(np.full(3, number), names)

    def apply(self, stream):
        """A batch of (topic, message)."""
        topics = {}
        for offset, (topic, message) in enumerate(stream):
            record = ConsumerRecord(
                topic, 0, offset, int(START * 1000), 0, None, encode(message), None, -1, -1, ()
            )
            topics.setdefault(topic, []).append(record)
        apply_records(self.theirs, topics, ACCEPTED, self.delay)
        reader = Reader(ACCEPTED)
        for topic in TOPIC_ORDER:
            if topic in topics:
                reader.apply(self.mine, topic, topics[topic])

    def of_scheduler(self, page_id):
        """What the scheduler has of a page; None: nothing."""
        shard, row = self.mine, self.mine.row_of(page_id)
        if row < 0:
            return None
        page, record = shard.pages[row], shard.records[row]
        attempt = shard.attempts.rows[page["attempt"]] if page["attempt"] else None
        days = days_since_change(record, float(page["last_crawled_at"]))
        return {
            "status": int(page["status"]),
            "host": shard.hosts.names[page["host"]],
            "importance": float(page["importance"]),
            "max_age": float(page["max_age"]),
            "updated": int(updated_steps_of(record)),
            "last_crawled_at": float(page["last_crawled_at"]),
            "last_attempt_at": float(last_attempt_of(shard.attempts.rows, page)),
            "failures": 0 if attempt is None else int(attempt["failures"]),
            "retry_at": NEVER if attempt is None else float(attempt["retry_at"]),
            "signals": float(page["signals"]),
            "last_signal_at": shard.signal_times.of(row),
            "by_source": shard.signal_times.by_source(row),
            "digest": int(record["digest"]),
            "days_since_change": pytest.approx(min(days, 120.0), abs=0.01),
        }

    def by_source_of_estimator(self, row):
        """When each source sent its last signal of a page."""
        shard = self.theirs
        page, latest = shard.pages[row], float(shard.pages["last_signal_at"][row])
        if page["several"]:
            end = math.ceil(latest) if latest > NEVER else NEVER
            entry, ages = page["several"], shard.by_source.ages
            return [time_of_source(ages, entry, end, slot) for slot in range(SOURCES)]
        return [
            latest if slot == shard.rings.last_source[row] else NEVER for slot in range(SOURCES)
        ]

    def of_estimator(self, page_id):
        """What the estimator has of a page, as the scheduler would keep it; None: nothing."""
        row = int(self.theirs.rows_of(np.array([page_id]))[0])
        if row < 0 or self.theirs.pages["status"][row] == REMOVED:
            return None
        page = self.theirs.pages[row]
        retry_at = retry_time(page["last_attempt_at"], page["failures"], RETRY)
        changed = page["last_changed_at"] > NEVER
        days = (page["last_crawled_at"] - page["last_changed_at"]) / DAY if changed else math.inf
        return {
            "status": int(page["status"]),
            "host": self.theirs.hosts.names[page["host"]],
            "importance": float(page["importance"]),
            "max_age": float(page["max_age_days"]) * DAY,
            "updated": int(update_steps(float(page["updated_at"]))),
            "last_crawled_at": float(page["last_crawled_at"]),
            "last_attempt_at": float(page["last_attempt_at"]),
            "failures": int(page["failures"]),
            "retry_at": float(retry_at),
            "signals": pytest.approx(float(self.theirs.rings.pending[row] @ WEIGHTS)),
            "last_signal_at": float(page["last_signal_at"]),
            "by_source": self.by_source_of_estimator(row),
            "digest": int(events.short_digests(page["digest"][None])[0]),
            "days_since_change": min(days, 120.0),
        }

    def limits_of_scheduler(self):
        """Rates and blocks by host; those without either are left out."""
        hosts = self.mine.hosts
        rows = hosts.rows[: len(hosts)]
        found = {}
        for name, row in zip(list(hosts.names), rows, strict=True):
            rate = float(row["rate"]) if row["own_limit"] else None
            found[name] = (rate, float(row["blocked_until"]))
        return {name: both for name, both in found.items() if both != (None, NEVER)}

    def limits_of_estimator(self):
        """The same as the estimator has it."""
        found = {}
        for name, row in zip(self.theirs.hosts.names, self.theirs.hosts.records, strict=False):
            rate = float(row["max_crawls_per_second"])
            found[name] = (None if math.isnan(rate) else rate, float(row["blocked_until"]))
        return {name: both for name, both in found.items() if both != (None, NEVER)}

    def compare(self):
        for url in URLS + STRANGERS:
            page_id = identify(url).page_id
            assert self.of_scheduler(page_id) == self.of_estimator(page_id), url
        assert self.limits_of_scheduler() == self.limits_of_estimator()


@given(
    streams,
    st.sets(st.integers(0, 40)),
    st.sampled_from([0.0, 0.5, 700.0]),
    st.sampled_from([0.0, 600.0, 3000.0]),
)
@settings(max_examples=800, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_one_stream_leaves_the_same_on_both_sides(stream, cuts, delay, step):
    stream = [later(item, step * place) for place, item in enumerate(stream) if item]
    both = BothSides(delay)
    both.apply(KNOWN)
    ends = sorted({*cuts, len(stream)})
    for begin, end in zip([0, *ends], ends, strict=False):
        both.apply(stream[begin:end])
        both.compare()
