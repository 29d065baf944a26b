"""A batch is applied in turns, between which slots are filled, and leaves what it would at once."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_shard import DAY, rules, url_of

from services.scheduler.flow import applying
from services.scheduler.flow import reader as reading
from services.scheduler.flow.applying import BatchWork
from services.scheduler.flow.reader import Reader
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rows import REMOVED
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlOutcome, HostParameters, PageSignal, PageUpdate
from shared.runtime.acceptance import Acceptance

NOW = 1.7e9
HOSTS = ["a", "b", "c"]
NUMBERS = range(40)


def made(number=0, numbers=NUMBERS):
    shard = make_shard(number, rules(host_rate=1e6))
    for host in HOSTS:
        for page in (url_of(host, n) for n in numbers):
            update = PageUpdate("upsert", page.url, crawled_at=NOW - DAY)
            shard.upsert(page, update, NOW - 10 * DAY)
    shard.selector.prepare(NOW)
    return shard


def told(host, alpha, kappa=0.5):
    return HostParameters(f"{host}.example", alpha, kappa, [], [kappa] * 4, [1.0] * 6, NOW)


def records_of(*messages):
    return [
        SimpleNamespace(
            value=encode(m), key=b"", timestamp=int(NOW * 1000), offset=n, topic="t", headers=()
        )
        for n, m in enumerate(messages)
    ]


def batch_for(*numbers):
    pages = [url_of(host, n) for host in HOSTS for n in NUMBERS]
    updates = [PageUpdate("upsert", page.url, importance=3.0, updated_at=NOW) for page in pages]
    signals = [PageSignal(p.page_id, p.url, p.host, "s", NOW + 1) for p in pages[::2]]
    outcomes = [CrawlOutcome(p.url, NOW + 2, result="unchanged") for p in pages[::3]]
    parts = {
        "page-updates": updates,
        "host-parameters": [told("a", 0.3), told("b", 0.4), told("a", 0.6)],
        "crawl-outcomes": outcomes,
        "page-signals": signals,
    }
    return {
        topic: {number: records_of(*messages) for number in numbers}
        for topic, messages in parts.items()
    }


def work(shards, batch, reached=None):
    reader = Reader(Acceptance(NOW + 5, NOW + 300, record_times_count=True))
    notes = [] if reached is None else reached
    return BatchWork(reader, shards, batch, None, lambda *what: notes.append(what))


def facts(shard):
    rows = shard.pages[: shard.used]
    rows = rows[rows["status"] != REMOVED]
    return {name: rows[name].tolist() for name in ("alpha", "kappa", "signals", "last_crawled_at")}


@pytest.fixture
def small(monkeypatch):
    """Each turn is a step, and each step a few records, or pages."""
    monkeypatch.setattr(applying, "_TURN_SECONDS", 0.0)
    monkeypatch.setattr(applying, "_RECORDS_AT_ONCE", 7)
    monkeypatch.setattr(applying, "_UPDATES_AT_ONCE", 5)
    for module in (applying, reading):
        monkeypatch.setattr(module, "PAGES_AT_ONCE", 11)


@pytest.mark.usefixtures("small")
def test_turns_leave_what_a_batch_at_once_would(monkeypatch):
    shards, reached, turns = {0: made()}, [], 1
    slow = work(shards, batch_for(0), reached)
    while not slow.turn():
        turns += 1
        shards[0].selector.select(np.array([NOW + 5 + turns / 1e3]), 1.0, 0.0)
    assert turns > 20
    offsets = {topic: offset for (topic, _), offset in reached}
    assert offsets == {t: len(parts[0]) for t, parts in batch_for(0).items()}

    monkeypatch.setattr(applying, "_TURN_SECONDS", 1e9)
    monkeypatch.setattr(reading, "PAGES_AT_ONCE", 10**6)
    at_once = {0: made()}
    assert work(at_once, batch_for(0)).turn()
    assert facts(shards[0]) == facts(at_once[0])


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("is_loaded_anew", [True, False])
def test_a_shard_that_goes_between_two_turns_gets_no_more(is_loaded_anew):
    """Its records are read again, by whoever has it then; those of others are applied."""
    shards, reached = {0: made(0), 1: made(1)}, []
    gone = shards[0]
    rest = work(shards, batch_for(0, 1), reached)
    assert not rest.turn()
    del shards[0]
    if is_loaded_anew:
        shards[0] = made(0)
    before, fresh = facts(gone), facts(made(0))
    while not rest.turn():
        pass
    assert facts(gone) == before
    assert not is_loaded_anew or facts(shards[0]) == fresh
    assert facts(shards[1])["last_crawled_at"] != fresh["last_crawled_at"]
    assert {number for (_, number), _ in reached} == {1}


def test_a_list_that_is_cleared_of_removed_pages_is_gone_through_again():
    """Where it was to go on is a row of another host by then."""
    shard = made(0, range(8))
    shard.refreshes.take([told("a", 0.7)])
    assert shard.refreshes.go_on(2)
    for number in (5, 4, 1, 0):
        shard.remove(url_of("a", number).page_id, NOW)
    for number in range(20, 24):
        page = url_of("b", number)
        shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=NOW), NOW)
    while shard.refreshes.go_on(2):
        pass
    rows = [shard.row_of(url_of("a", number).page_id) for number in (2, 3, 6, 7)]
    assert shard.pages["alpha"][rows] == pytest.approx(0.7)


NEWS = st.tuples(st.just("told"), st.sampled_from(HOSTS), st.sampled_from([0.1, 0.4, 0.9]))
PAGES = st.tuples(st.sampled_from(["add", "remove"]), st.sampled_from(HOSTS), st.integers(0, 9))
TURNS = st.tuples(st.just("turn"), st.just(""), st.integers(1, 9))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(NEWS, PAGES, PAGES, TURNS, TURNS), max_size=60))
def test_pages_come_to_what_was_learned_of_their_hosts_whatever_happens_between(story):
    """Lists of hosts are cleared of removed pages, whose rows become those of other hosts."""
    slow, at_once = made(0, range(6)), made(0, range(6))
    for place, (what, host, value) in enumerate(story):
        page, now = url_of(host or "a", value), NOW + place
        if what == "told":
            slow.refreshes.take([told(host, value)])
            at_once.host_parameters([told(host, value)])
        elif what == "turn":
            slow.refreshes.go_on(value)
        for shard in (slow, at_once):
            if what == "add":
                shard.upsert(page, PageUpdate("upsert", page.url, crawled_at=now), now)
            elif what == "remove":
                shard.remove(page.page_id, now)
    while slow.refreshes.go_on(7):
        pass
    assert facts(slow) == facts(at_once)
    assert slow.changes.told == at_once.changes.told
