"""When a page is due: its scheduler says the same as an answer from the database alone, and as the
kernels that pick."""

import dataclasses
import math
import random

import pytest
from reference_shard import DAY, NEVER, PageView, World, rules

from services.scheduler.explain import page_state
from services.scheduler.picking.priority import (
    BY_VALUE,
    NEW,
    NOT_NOW,
    OVER_AGE,
    URGENT,
    due_at,
    terms_of,
    tier_of,
)
from shared.rules.page_due import PATIENCE
from shared.rules.page_events import (
    CONFIRMATIONS,
    failures_that_count,
    misses_that_count,
    retry_time,
)
from shared.store.page_status import ACTIVE, AWAY, STATUS_NAMES
from shared.views.explaining import explain
from shared.views.page_value import Bounds

NOW = 1.7e9
RETRY = 300.0
RATES = ("unsignalled_change_rate", "signal_evidence", "signal_rate")


def drawn(rng):
    """A page of any state: its row, and its attempt."""
    crawled_at = rng.choice(
        [NEVER, *(NOW - rng.choice([0.001, 1.0, 20.0]) * DAY for _ in range(4))]
    )
    status = rng.choice([ACTIVE] * 5 + list(AWAY))
    failures = rng.choice([0, 0, 1, 2, PATIENCE, 7])
    misses = 0
    if status != ACTIVE:
        failures = misses = CONFIRMATIONS + rng.randrange(3)
    tried_at = NOW - rng.choice([0.0005, 0.5, 5.0]) * DAY if failures else NEVER
    tried_at = max(tried_at, crawled_at)
    urgent_at = rng.choice([NEVER] * 4 + [NOW - 60.0, NOW - 6.0 * DAY])
    page = {
        "importance": rng.choice([0.0, 0.5, 2.0, 2.0]),
        "alpha": rng.choice([1 / 64, 1 / 4]),
        "kappa": rng.choice([0.0, 1.0]),
        "gamma": rng.choice([0.0, 1 / 8]),
        "signals": rng.choice([0.0, 0.0, 2.0]),
        "last_crawled_at": crawled_at,
        "max_age": rng.choice([math.inf, 2.0 * DAY, 64.0 * DAY]),
        "status": status,
    }
    attempt = {
        "failures": failures,
        "misses": misses,
        "last_attempt_at": tried_at,
        "urgent_at": urgent_at if urgent_at > crawled_at else NEVER,
    }
    return page, attempt


def retry_at(page, attempt):
    """As both have it from elsewhere."""
    failures, misses = attempt["failures"], attempt["misses"]
    count = failures_that_count(page["status"], failures, misses)
    misses = misses_that_count(page["status"], misses)
    return retry_time(attempt["last_attempt_at"], count, misses, RETRY, page["last_crawled_at"])


def put(world, number, page, attempt):
    """The page in the shard, in that state."""
    identity = world.add_page("a", number, NOW - 30.0 * DAY)
    view = PageView(world.shard, identity.page_id)
    for name, value in page.items():
        view[name] = value
    if attempt["failures"] or attempt["urgent_at"] > NEVER:
        for name, value in (attempt | {"retry_at": retry_at(page, attempt)}).items():
            view[name] = value
    return identity


def stored(page, attempt):
    """The page as the database has it."""

    def time(at):
        return None if at == NEVER else at

    return {
        "url": "https://a.example/",
        "status": STATUS_NAMES[page["status"]],
        "state": {
            "importance": page["importance"],
            "class_weight": 1.0,
            "max_age_days": None if page["max_age"] == math.inf else page["max_age"] / DAY,
            "signals": page["signals"],
            "failures": attempt["failures"],
            "misses": attempt["misses"],
            "last_crawled_at": time(page["last_crawled_at"]),
            "last_attempt_at": time(attempt["last_attempt_at"]),
            "urgent_at": time(attempt["urgent_at"]),
        },
        "parameters": dict(zip(RATES, (page["alpha"], page["kappa"], page["gamma"]), strict=True)),
        "host": {"host": "a.example"},
        "crawls": [],
    }


@pytest.mark.parametrize(("least_interval", "least_value"), [(0.0, 0.0), (3600.0, 0.25)])
def test_all_three_say_the_same(least_interval, least_value):
    rng = random.Random(7)
    told = rules(retry=RETRY, least_interval=least_interval, least_value=least_value)
    world = World(dataclasses.replace(told, failed_retry=RETRY))
    terms = terms_of(world.shard.rules.picking)
    bounds = Bounds(RETRY, least_interval, least_value=least_value)
    seen = set()
    for number in range(400):
        page, attempt = drawn(rng)
        identity = put(world, number, page, attempt)
        threshold = rng.choice([0.01, 1.0, 6.0])
        row = world.shard.pages[world.shard.row_of(identity.page_id)]
        attempts = world.shard.attempts.rows
        kernels = float(due_at(row, attempts, max(threshold, least_value), terms))
        expected = max(kernels, NOW)

        by_scheduler = page_state(world.shard, identity, NOW, threshold)["due_at"]
        by_database = explain(stored(page, attempt), None, threshold, NOW, bounds=bounds)

        for found in (by_scheduler, by_database["decision"]["due_at"]):
            waits = math.inf if found is None else found - NOW
            assert waits == pytest.approx(expected - NOW, rel=1e-4, abs=2.0), (page, attempt)
        seen.add(int(tier_of(row, attempts, NOW, terms)))
    assert seen == {NOT_NOW, BY_VALUE, OVER_AGE, NEW, URGENT}
