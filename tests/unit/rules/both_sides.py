"""A scheduler's and an estimator's shard, to which the same records come: of what both keep, both
have the same."""

import math

import numpy as np
import pytest
from aiokafka import ConsumerRecord

from services.estimator.application import apply_records
from services.estimator.shard import Shard as EstimatorShard
from services.scheduler.flow.reader import TOPIC_ORDER, Reader
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.attempts import last_attempt_of
from services.scheduler.state.crawls import short_digests
from services.scheduler.state.packing import days_since_change, update_steps, updated_steps_of
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import HostParameters, PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.rules.host_rules import HostRules
from shared.rules.page_events import (
    failures_that_count,
    is_wanted,
    misses_that_count,
    retry_time,
)
from shared.runtime.acceptance import Acceptance
from shared.store.history import SOURCES
from shared.store.page_status import NEVER, REMOVED
from shared.store.source_times import time_of_source

START = 1.7e9
DAY = 86_400.0
RETRY = 300.0
RATE = 1.0
HOSTS = ("a.example", "b.example")
URLS = tuple(f"https://{host}/{path}" for host in HOSTS for path in ("x", "y"))
STRANGERS = (f"https://{HOSTS[0]}/never-added", "https://nobody.example/x")
SOURCES_OF = {HOSTS[0]: ["feed", "map", "hub"], HOSTS[1]: ["y", "feed", "x"]}
ACCEPTED = Acceptance(START + 40 * DAY, START + 40 * DAY, True)
NO_RULES = str(HostRules())
WEIGHTS = np.array([2.0, 0.5, 1.0, 0.25])
CERTAIN = 200.0
"""Evidence of signals that are of no batch: what is believed of batches (`state.batches`), and how
much their signals count for it, is the schedulers' alone."""
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
                HostParameters(
                    host, 0.1, CERTAIN, names, (CERTAIN * WEIGHTS).tolist(), [1.0] * 6, START
                )
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
            "urgent_at": NEVER if attempt is None else float(attempt["urgent_at"]),
            "last_crawled_at": float(page["last_crawled_at"]),
            "last_attempt_at": float(last_attempt_of(shard.attempts.rows, page)),
            "failures": 0 if attempt is None else int(attempt["failures"]),
            "misses": 0 if attempt is None else int(attempt["misses"]),
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
        retry_at = retry_time(
            page["last_attempt_at"],
            failures_that_count(page["status"], page["failures"], page["misses"]),
            misses_that_count(page["status"], page["misses"]),
            RETRY,
            page["last_crawled_at"],
        )
        changed = page["last_changed_at"] > NEVER
        is_asked = is_wanted(page["urgent_at"], page["last_crawled_at"])
        days = (page["last_crawled_at"] - page["last_changed_at"]) / DAY if changed else math.inf
        return {
            "status": int(page["status"]),
            "host": self.theirs.hosts.names[page["host"]],
            "importance": float(page["importance"]),
            "max_age": float(page["max_age_days"]) * DAY,
            "updated": int(update_steps(float(page["updated_at"]))),
            "urgent_at": float(page["urgent_at"] if is_asked else NEVER),
            "last_crawled_at": float(page["last_crawled_at"]),
            "last_attempt_at": float(page["last_attempt_at"]),
            "failures": int(page["failures"]),
            "misses": int(page["misses"]),
            "retry_at": float(retry_at),
            "signals": pytest.approx(float(self.theirs.rings.pending[row] @ WEIGHTS)),
            "last_signal_at": float(page["last_signal_at"]),
            "by_source": self.by_source_of_estimator(row),
            "digest": int(short_digests(page["digest"][None])[0]),
            "days_since_change": min(days, 120.0),
        }

    def rules_of_scheduler(self):
        """The rules of hosts of which anything is said."""
        hosts = self.mine.hosts
        found = {
            name: hosts._rules.get(number, HostRules()) for number, name in enumerate(hosts.names)
        }
        return {name: str(rules) for name, rules in found.items() if str(rules) != NO_RULES}

    def rules_of_estimator(self):
        """The same as the estimator has it."""
        hosts = self.theirs.hosts
        rows = zip(hosts.names, hosts.records, strict=False)
        found = {name: HostRules.read(row) for name, row in rows}
        return {name: str(rules) for name, rules in found.items() if str(rules) != NO_RULES}

    def compare(self):
        for url in URLS + STRANGERS:
            page_id = identify(url).page_id
            assert self.of_scheduler(page_id) == self.of_estimator(page_id), url
        assert self.rules_of_scheduler() == self.rules_of_estimator()
