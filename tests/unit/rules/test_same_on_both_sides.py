"""One stream of records through the scheduler and the estimator: of what both keep, both have the
same, whatever comes late, twice, out of order, or about nobody."""

from dataclasses import replace as replaced

import numpy as np
import pytest
from both_sides import ACCEPTED, DAY, HOSTS, KNOWN, START, STRANGERS, URLS, BothSides
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, HostLimit, PageSignal, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES

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
AWAY = ["redirected", "canonical", "disallowed"]
TARGETS = {"redirected": "redirected_to", "canonical": "canonical_url"}


def outcome_of(target, **fields):
    """An outcome, with a target if its result has one."""
    name = TARGETS.get(fields["result"])
    return CrawlOutcome(**fields, **({name: target} if name else {}))


outcomes = st.builds(
    outcome_of,
    # To the page itself, maybe, to what is no URL, or elsewhere.
    target=maybe | st.sampled_from([URLS[0] + "#here", "mailto:you", "https://c.example/"]),
    url=urls,
    crawled_at=times,
    host=st.sampled_from(["", *HOSTS]),
    result=st.sampled_from(["changed", "unchanged", "not_modified", "gone", "failed", *AWAY]),
    digest=maybe | st.sampled_from(["one", "two"]),
    http_status=maybe | st.sampled_from([404, 410, 429, 500]),
    retry_after_seconds=maybe | st.sampled_from([50.0, 5000.0, 1e9]),
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
    urgent=st.booleans(),
)
unbounding = st.builds(
    PageUpdate,
    op=st.just("upsert"),
    url=urls.filter(lambda url: url != STRANGERS[1]),
    updated_at=times,
    no_max_age=st.just(True),
)
updates = updates | updates | unbounding
limits = st.builds(
    HostLimit,
    st.sampled_from([*HOSTS, "only-limited.example"]),
    maybe | st.sampled_from([0.0, 0.25, 9.0]),
    maybe | times,
    maybe | st.sampled_from([0.0, 30.0]),
    maybe | st.sampled_from([1, 7]),
    maybe | st.sampled_from(["limit", "block", "crawl-delay", "open"]),
)
KINDS = {
    PAGE_SIGNALS.name: signals,
    CRAWL_OUTCOMES.name: outcomes,
    PAGE_UPDATES.name: updates,
    HOST_LIMITS.name: limits,
}
OFTEN = [PAGE_SIGNALS.name] * 3 + [CRAWL_OUTCOMES.name] * 4 + [PAGE_UPDATES.name] * 3
# Made once: strategies that are made for each message cost more than all that is tested with them.
ITEMS = {topic: st.tuples(st.just(topic), kind) for topic, kind in KINDS.items()} | {None: maybe}
streams = st.lists(
    st.sampled_from([None, *OFTEN, HOST_LIMITS.name]).flatmap(ITEMS.__getitem__),
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


def signalled(time, url=URLS[0]):
    return PAGE_SIGNALS.name, signal_of(url, time, "feed")


def crawled(time, result, http_status=None):
    outcome = CrawlOutcome(URLS[0], time, result=result, http_status=http_status)
    return CRAWL_OUTCOMES.name, outcome


# A signal amid crawls that find nothing, all in one batch.
AMID_404S = [
    crawled(START + 1200.0, "gone"),
    crawled(START + 600.0, "gone", 410),
    signalled(START + 1200.0),
]
# Of two pages that are signalled together one is crawled, and has changed.
TOGETHER = [
    crawled(START - DAY, "unchanged"),
    signalled(START),
    signalled(START + 5.0, URLS[1]),
    crawled(START + 60.0, "changed"),
]


in_any_batches = given(
    streams,
    st.sets(st.integers(0, 40)),
    st.sampled_from([0.0, 0.5, 700.0]),
    st.sampled_from([0.0, 600.0, 3000.0]),
)
BUSY = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@in_any_batches
@example(AMID_404S, set(), 0.0, 0.0)
@example(TOGETHER, {3}, 0.0, 0.0)
@pytest.mark.slow(3)
@settings(max_examples=250, **BUSY)
def test_one_stream_leaves_the_same_on_both_sides(stream, cuts, delay, step):
    leaves_the_same(stream, cuts, delay, step)


@in_any_batches
@pytest.mark.long
@pytest.mark.slow(30)
@settings(max_examples=3000, **BUSY)
def test_of_many_streams_none_leaves_anything_else(stream, cuts, delay, step):
    leaves_the_same(stream, cuts, delay, step)


def leaves_the_same(stream, cuts, delay, step):
    stream = [later(item, step * place) for place, item in enumerate(stream) if item]
    both = BothSides(delay)
    both.apply(KNOWN)
    ends = sorted({*cuts, len(stream)})
    for begin, end in zip([0, *ends], ends, strict=False):
        both.apply(stream[begin:end])
        both.compare()


def in_one_batch(items, delay):
    both = BothSides(delay)
    both.apply(KNOWN)
    both.apply(items)
    return both


def one_by_one(items, order, delay):
    """Each in a batch of its own; each topic in its order, one topic before another as it comes."""
    both = BothSides(delay)
    both.apply(KNOWN)
    topics = {}
    for item in items:
        topics.setdefault(item[0], []).append(item)
    places = [topic for topic, _ in items]
    for place in order.permutation(len(places)):
        both.apply([topics[places[place]].pop(0)])
    return both


TRUTH = ("status", "failures", "misses", "last_attempt_at", "last_crawled_at", "retry_at")


def truth_of(side, url):
    page = side(identify(url).page_id)
    return {name: page[name] for name in TRUTH}


crawls = st.builds(
    CrawlOutcome,
    url=st.sampled_from(URLS[:2]),
    crawled_at=steps,
    result=st.sampled_from(["gone", "gone", "failed", "unchanged", *AWAY]),
    http_status=st.sampled_from([None, 410, None]),
)
named = st.builds(
    signal_of, st.sampled_from(URLS[:2]), steps | quarters, st.sampled_from(["feed", "x"])
)
added = st.builds(PageUpdate, st.just("upsert"), st.sampled_from(URLS[:2]), updated_at=steps)


@pytest.mark.slow(2)
@given(
    st.lists(crawls, max_size=10).map(lambda all_: sorted(all_, key=lambda one: one.crawled_at)),
    st.lists(named, max_size=6),
    st.lists(added, max_size=3),
    st.sampled_from([0.0, 700.0]),
    st.integers(0, 1 << 32).map(np.random.default_rng),
)
@settings(max_examples=200, deadline=None)
def test_whether_and_why_a_page_is_away_does_not_depend_on_which_topic_is_read_first(
    crawls, signals, updates, delay, order
):
    items = [
        *((CRAWL_OUTCOMES.name, one) for one in crawls),
        *((PAGE_SIGNALS.name, one) for one in signals),
        *((PAGE_UPDATES.name, one) for one in updates),
    ]
    together = in_one_batch(items, delay)
    apart = one_by_one(items, order, delay)
    for url in URLS[:2]:
        truth = truth_of(together.of_scheduler, url)
        for side in (together.of_estimator, apart.of_scheduler, apart.of_estimator):
            assert truth_of(side, url) == truth, url


def updated(time, op="upsert", **said):
    return PAGE_UPDATES.name, PageUpdate(op, URLS[-1], updated_at=time, **said)


def test_a_maximum_age_is_cleared_by_who_says_so_and_by_no_older_message():
    page_id = identify(URLS[-1]).page_id
    both = BothSides(0.0)
    ages = []
    for time, said in (
        (2, {"max_age_days": 3.0}),
        (3, {"importance": 2.0}),
        (1, {"no_max_age": True}),
        (5, {"no_max_age": True}),
        (4, {"max_age_days": 7.0}),
        (6, {"max_age_days": 1.0}),
    ):
        both.apply([updated(START + time, **said)])
        both.compare()
        ages.append(both.of_scheduler(page_id)["max_age"] / DAY)
    assert ages == [3.0, 3.0, 3.0, np.inf, np.inf, 1.0]
    with pytest.raises(ValueError, match="contradict"):
        PageUpdate("upsert", URLS[0], max_age_days=1.0, no_max_age=True)


def test_pages_on_private_addresses_are_not_added_unless_the_operator_says_so(monkeypatch):
    url = "http://169.254.169.254/latest"
    added = PAGE_UPDATES.name, PageUpdate("upsert", url, updated_at=START)
    removed = PAGE_UPDATES.name, PageUpdate("remove", url, updated_at=START + 1)
    page_id = identify(url).page_id
    both = BothSides(0.0)
    both.apply([added])
    assert both.of_scheduler(page_id) is not None
    monkeypatch.setattr("both_sides.ACCEPTED", replaced(ACCEPTED, private_hosts=False))
    both.apply([removed])
    assert both.of_scheduler(page_id) is both.of_estimator(page_id) is None
    strict = BothSides(0.0)
    strict.apply([added])
    assert strict.of_scheduler(page_id) is strict.of_estimator(page_id) is None
