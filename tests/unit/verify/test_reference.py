"""The reference of what is learned agrees with the estimator, and tells when it goes wrong."""

import math
from types import SimpleNamespace

import numpy as np
import pytest

from services.estimator.application import apply_records
from services.estimator.learning import learn as estimators_learn
from services.estimator.refitting import refit as estimators_refit
from services.estimator.shard import Shard
from services.verify.reference import comparing, quiet_crawls
from services.verify.reference.fitting import evidence_of, learn, refit
from services.verify.reference.rules import Terms, apply
from services.verify.reference.state import CrawlRecord, HostState, PageState, State, times_of
from services.verify.relearning import out_of_order
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, HostLimit, PageSignal, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.runtime.acceptance import Acceptance
from shared.store.columns import HOST_RULES
from shared.store.history import DEPTH
from shared.store.host_factors import HostFactors

SHARDS = 2
DAY = 86_400.0
START = 1.7e9
MATERIAL = 0.05
PAGES = [identify(f"https://h{n % 5}.s{n % 5 % 2}.example/d{n % 3}/{n}") for n in range(40)]
COLUMNS = (
    *("importance", "max_age_days", "unsignalled_change_rate", "signal_evidence", "signal_rate"),
    *("first_seen_at", "last_crawled_at", "last_attempt_at", "last_changed_at", "last_signal_at"),
    *("updated_at", "digest", "signal_count", "signals", "crawls", "changes", "failures", "misses"),
    *("status", "directory"),
)


def record(message, at):
    return SimpleNamespace(value=encode(message), key=b"k", timestamp=int(at * 1000), offset=0)


class Both:
    """The estimator's shards and the reference, to which the same companies of messages come."""

    def __init__(self):
        self.shards = {number: Shard(number, Layout.of(SHARDS)) for number in range(SHARDS)}
        self.state = State({}, {})
        self.observations = []
        self.expected_observations = []

    def take(self, messages, now, *, refits=False):
        """Messages with the times at which they came, in the order of their topics."""
        batches = {}
        topics = {
            PageUpdate: PAGE_UPDATES,
            PageSignal: PAGE_SIGNALS,
            CrawlOutcome: CRAWL_OUTCOMES,
            HostLimit: HOST_LIMITS,
        }
        for message, at in messages:
            host = getattr(message, "host", "") or identify(message.url).host
            of_shard = batches.setdefault(shard_of(host, SHARDS), {})
            of_shard.setdefault(topics[type(message)].name, []).append(record(message, at))
        acceptance = Acceptance(now, now + 300.0, record_times_count=True)
        for number, batch in sorted(batches.items()):
            done = apply_records(self.shards[number], batch, acceptance, 0.0)
            estimators_learn(done)
            found = done.observations
            columns = (found.page_ids, found.crawled_at, found.interval_days)
            columns += (found.signals, found.changed)
            self.observations += zip(*(column.tolist() for column in columns), strict=True)
            effects = apply(
                self.state, number, batch, Terms(Layout.of(SHARDS), now, now + 300.0, 0.0)
            )
            learn(self.state, effects)
            self.expected_observations += effects.observations
        if refits:
            estimators_refit([self.shards[n] for n in range(SHARDS)], MATERIAL)
            refit(self.state, MATERIAL, range(SHARDS))

    def differences(self):
        return comparing.differences(self.estimators_state(), self.state)

    def estimators_state(self):
        """What the estimator's arrays say."""
        pages, hosts = {}, {}
        for number, shard in self.shards.items():
            for row, name in enumerate(shard.hosts.names):
                hosts[name] = host_of(shard, row, name, number)
            for row in range(len(shard.pages)):
                page = page_of(shard, row, number)
                pages[page.page_id] = page
        return State(pages, hosts)


def page_of(shard, row, number):
    columns, rings = shard.pages[row], shard.rings
    page = PageState(int(columns["page_id"]), number, shard.hosts.names[columns["host"]])
    for name in COLUMNS:
        setattr(page, name, columns[name].item())
    page.pending, page.totals = rings.pending[row].tolist(), rings.totals[row].tolist()
    page.last_source = int(rings.last_source[row])
    if entry := int(columns["several"]):
        page.by_source = times_of(shard.by_source.ages[entry].tolist(), page.last_signal_at)
    page.multiplier = float(rings.multiplier[row])
    page.source_evidence = rings.evidence[row].tolist()
    page.posterior_shape = float(rings.posterior_shape[row])
    seen = int(rings.seen[row])
    for place in range(max(seen - DEPTH, 0), seen):
        slot = place % DEPTH
        page.records.append(
            CrawlRecord(
                float(rings.interval_days[row, slot]),
                tuple(rings.signals[row, slot].tolist()),
                bool(rings.changed[row, slot]),
            )
        )
    return page


def host_of(shard, row, name, number):
    columns, learning = shard.hosts.records[row], shard.hosts.learning
    host = HostState(name, number)
    for field in HOST_RULES.names:
        setattr(host, field, columns[field].item())
    host.prior_shape, host.prior_rate = columns["prior_shape"].item(), columns["prior_rate"].item()
    for field in ("quiet_found", "quiet_predicted", "quiet_belief"):
        setattr(host, field, columns[field].item())
    host.sources = list(shard.hosts.sources[row])
    host.precision, host.signals = learning.precision[row].copy(), learning.signals[row].copy()
    host.expected_changes = learning.expected_changes[row : row + 1].copy()
    host.predicted_changes = learning.predicted_changes[row : row + 1].copy()
    host.prior_precision = -math.expm1(-float(learning.evidence[row]))
    factors = shard.hosts.factors.get(row) or HostFactors.none()
    host.activity = factors.activity.tolist()
    host.directories = dict(
        zip(factors.directories.tolist(), factors.factors.tolist(), strict=True)
    )
    return host


TARGETS = {"redirected": "redirected_to", "canonical": "canonical_url", "disallowed": None}


def some_messages(rng, now):
    """A company of messages: repeated, late and out of order ones among them."""
    for _ in range(int(rng.integers(5, 60))):
        page = PAGES[int(rng.integers(len(PAGES)))]
        time = now - float(rng.exponential(2.0)) * DAY
        luck = rng.random()
        if luck < 0.45:
            source = f"s{rng.integers(6)}"
            yield PageSignal(page.page_id, page.url, page.host, source, time), now
        elif luck < 0.9:
            results = ["changed", "unchanged", "not_modified", "gone", "failed", None, *TARGETS]
            result = rng.choice(results, p=[0.35, 0.25, 0.05, 0.05, 0.1, 0.15, 0.01, 0.02, 0.02])
            target = rng.choice([None, page.url + "#x", "mailto:you", f"https://{page.host}/else"])
            elsewhere = {TARGETS[result]: target} if TARGETS.get(result) else {}
            digest = f"d{rng.integers(3)}" if result is None or rng.random() < 0.3 else None
            busy = float(rng.uniform(1, 9)) if rng.random() < 0.1 else None
            status = rng.choice([200, 200, 503, None])
            yield (
                CrawlOutcome(
                    *(page.url, time),
                    result=result,
                    digest=digest,
                    http_status=status,
                    retry_after_seconds=busy,
                    group=rng.choice([None, "203.0.113.7", "2001:db8::7"]),
                    **elsewhere,
                ),
                now,
            )
        elif luck < 0.97:
            yield some_update(rng, page, time), now
        else:
            rate, most_open = float(rng.integers(1, 9)), int(rng.integers(1, 4))
            only = rng.choice([None, "limit", "open", "open"])
            yield HostLimit(page.host, rate, max_open_requests=most_open, only=only), now


def some_update(rng, page, time):
    if rng.random() < 0.2:
        return PageUpdate("remove", page.url, updated_at=time)
    return PageUpdate(
        *("upsert", page.url, float(rng.integers(1, 9))),
        max_age_days=float(rng.integers(1, 9)) if rng.random() < 0.5 else None,
        updated_at=time if rng.random() < 0.8 else None,
        crawled_at=time - DAY if rng.random() < 0.3 else None,
    )


def a_life(seed, companies=60):
    rng, both = np.random.default_rng(seed), Both()
    added = [PageUpdate("upsert", page.url, 1.0, updated_at=START) for page in PAGES[:30]]
    both.take([(update, START) for update in added], START)
    now = START
    for number in range(companies):
        now += float(rng.exponential(0.5)) * DAY
        messages = list(some_messages(rng, now))
        messages += [one for one in messages if rng.random() < 0.1]
        both.take(messages, now, refits=number % 15 == 14)
    return both


@pytest.mark.parametrize("seed", range(4))
def test_the_estimator_comes_to_what_the_reference_does(seed):
    both = a_life(seed)

    assert both.differences() == ([], [])
    assert sorted(both.observations) == sorted(both.expected_observations)
    assert len(both.observations) > 200
    assert any(not math.isnan(p.unsignalled_change_rate) for p in both.state.pages.values())
    assert any(page.multiplier != 1.0 for page in both.state.pages.values())
    assert any(len(host.directories) > 1 for host in both.state.hosts.values())
    assert {host.named_group for host in both.state.hosts.values()} > {b"203.0.113.7"}


@pytest.fixture(scope="module")
def life():
    return a_life(7)


@pytest.mark.parametrize(
    "name",
    [
        *("unsignalled_change_rate", "signal_evidence", "signal_rate", "last_signal_at"),
        *("signals", "changes", "failures", "status", "multiplier", "posterior_shape"),
    ],
)
def test_a_page_that_is_other_is_found(life, name):
    theirs = life.estimators_state()
    page = next(p for p in theirs.pages.values() if p.records and math.isfinite(p.last_signal_at))
    setattr(page, name, getattr(page, name) * (1 + 1e-5) + 1)

    [found] = comparing.differences(theirs, life.state)[0]

    assert f"page {page.page_id} " in found
    assert name in found


def test_a_crawl_record_that_is_missing_from_a_history_is_found(life):
    theirs = life.estimators_state()
    page = next(page for page in theirs.pages.values() if page.records)
    del page.records[-1]

    assert len(comparing.differences(theirs, life.state)[0]) == 1


@pytest.mark.parametrize(
    "name",
    [
        *("prior_shape", "prior_rate", "precision", "signals", "expected_changes", "sources"),
        *("activity", "directories"),
    ],
)
def test_a_host_that_is_other_is_found(life, name):
    theirs = life.estimators_state()
    host = next(h for h in theirs.hosts.values() if h.directories or name != "directories")
    before = getattr(host, name)
    if name == "sources":
        other = [*before, "?"]
    elif name == "activity":
        other = [factor * (1 + 1e-6) for factor in before]
    elif name == "directories":
        other = {code: factor * (1 + 1e-6) for code, factor in before.items()}
    else:
        other = before * (1 + 1e-6)
    setattr(host, name, other)

    [found] = comparing.differences(theirs, life.state)[1]

    assert f"host {host.name} " in found
    assert name in found or (name == "directories" and "factors" in found)


def a_quiet_life(seed):
    """Hosts of two sites, on both shards. One's changes are signalled, and of crawls of its pages
    without a signal few find any; the other's are never signalled."""
    rng, both, now = np.random.default_rng(seed), Both(), START
    pages = [identify(f"https://h{n % 4}.s{n % 2}.example/d/{n}") for n in range(60)]
    added = [PageUpdate("upsert", p.url, 1.0, updated_at=now, crawled_at=now) for p in pages]
    both.take([(update, now) for update in added], now)
    for number in range(40):
        now += 2.0 * DAY
        messages = []
        for place in rng.choice(len(pages), 12, replace=False).tolist():
            page, is_signalled = pages[place], place % 2 == 0 and place < 20
            if is_signalled:
                at = now - 0.1 * DAY
                messages.append((PageSignal(page.page_id, page.url, page.host, "s", at), at))
            is_changed = is_signalled or rng.random() < 0.03
            result = "changed" if is_changed else "unchanged"
            messages.append((CrawlOutcome(page.url, now, result=result), now))
        both.take(messages, now, refits=number % 10 == 9)
    return both


@pytest.mark.parametrize("seed", range(4))
def test_what_is_believed_of_quiet_pages_is_what_the_reference_comes_to(seed):
    both = a_quiet_life(seed)

    assert both.differences() == ([], [])
    for name, host in both.state.hosts.items():
        assert host.quiet_predicted > 1
        is_trusted = name.endswith("s0.example")
        assert 0.2 <= host.quiet_belief < 0.95 if is_trusted else host.quiet_belief == 1.0
    assert sum(host.quiet_found for host in both.state.hosts.values()) > 2


@pytest.mark.parametrize("name", ["quiet_found", "quiet_predicted", "quiet_belief"])
def test_quiet_pages_of_a_host_that_are_other_are_found(name):
    both = a_quiet_life(5)
    theirs = both.estimators_state()
    host = theirs.hosts["h2.s0.example"]
    setattr(host, name, getattr(host, name) * (1 + 1e-6))

    [found] = comparing.differences(theirs, both.state)[1]

    assert f"host {host.name} " in found
    assert name in found


def test_quiet_crawls_that_are_not_counted_are_found(monkeypatch):
    monkeypatch.setattr(quiet_crawls, "_note_unchanged", lambda *_, **__: None)

    of_hosts = a_quiet_life(5).differences()[1]

    assert any("quiet_found" in one for one in of_hosts)
    assert any("quiet_belief" in one for one in of_hosts)


def test_pages_and_hosts_that_are_missing_are_found(life):
    theirs = life.estimators_state()
    del theirs.pages[next(iter(theirs.pages))]
    del theirs.hosts[next(iter(theirs.hosts))]

    of_pages, of_hosts = comparing.differences(theirs, life.state)

    assert [len(of_pages), len(of_hosts)] == [1, 1]


def test_a_signal_that_was_counted_for_another_source_is_found():
    right, wrong = Both(), Both()
    page = PAGES[0]
    for both, source in ((right, "a"), (wrong, "b")):
        both.take([(PageUpdate("upsert", page.url, 1.0, updated_at=START), START)], START)
        for name in ("a", source):
            at = START + (DAY if name == "a" else 2 * DAY)
            signal = PageSignal(page.page_id, page.url, page.host, name, at)
            both.take([(signal, at)], at)

    of_pages, of_hosts = comparing.differences(wrong.estimators_state(), right.state)

    assert any("totals" in found for found in of_pages)
    assert any("sources" in found for found in of_hosts)
    assert evidence_of(right.state.hosts[page.host]) > 0


def test_records_that_came_in_another_order_are_counted():
    in_order = [(1, 10.0, 1.0, 1, True), (1, 20.0, 1.0, 0, False)]

    assert out_of_order(in_order, in_order) == 0.0
    assert out_of_order([in_order[0], (1, 20.0, 1.0, 1, False)], in_order) == 0.5
