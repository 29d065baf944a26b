"""When host priors are refitted, what moves, and which pages follow."""

import numpy as np
import pytest

from services.estimator.application import ShardEffects
from services.estimator.learning import assign, fit, mean_evidence
from services.estimator.refitting import (
    FIRST_RECORDS,
    MOST_PAGES,
    Refits,
    merged,
    refit,
    set_beliefs,
    sums_of,
)
from services.estimator.shard import Shard
from services.estimator.surveying import Candidates, Looked, take
from shared.contracts.identity import identify
from shared.policy.estimation.host_priors import fit_host_priors, host_sums
from shared.policy.estimation.map_kernel import LOWEST_PRECISION
from shared.rules.sites import sites_of
from shared.store.history import SOURCES

DAY = 86_400.0


def shard_of_pages(hosts, pages, change_probability, seed=1, number=0, records=3):
    """Pages with a few records of a day each, some without."""
    rng = np.random.default_rng(seed)
    shard = Shard(number)
    urls = [f"https://h{number}-{p % hosts}.example/{p}" for p in range(pages)]
    shard.add_pages([(identify(url), 0.0) for url in urls])
    crawled = np.flatnonzero(np.arange(pages) % 4 > 0)
    rings = shard.rings
    rings.interval_days[crawled, :records] = 1.0
    chance = np.asarray(change_probability)[shard.pages["host"][crawled]]
    rings.changed[crawled, :records] = rng.random((crawled.size, records)) < chance[:, np.newaxis]
    rings.seen[crawled] = records
    assign(shard, crawled, fit(shard, crawled))
    shard.pages["signal_evidence"][crawled] = mean_evidence(shard, crawled, rings.evidence[crawled])
    shard.records = int(rings.seen.sum())
    return shard


def means_of(shard):
    priors = shard.hosts.priors
    return priors.shape / priors.rate


def test_busy_hosts_get_a_higher_prior_than_quiet_ones():
    shard = shard_of_pages(2, 400, [0.6, 0.02])
    [done] = refit([shard], 0.05)
    assert done.hosts.tolist() == [0, 1]
    busy, quiet = means_of(shard)
    assert busy > 4 * quiet > 0


def test_a_host_without_pages_and_a_new_one_get_what_is_usual_everywhere():
    shard = shard_of_pages(2, 400, [0.6, 0.6])
    empty = Shard(1)
    empty.add_pages([(identify("https://unknown.example/"), 0.0)])
    refit([shard, empty], 0.05)
    row = empty.hosts.row_or_new("new.example")
    rates = means_of(empty)
    assert rates[0] == rates[row] == pytest.approx(means_of(shard)[0], rel=0.3)


def test_a_shard_without_any_host_does_not_stand_in_the_way_of_the_others():
    shard, alone = (shard_of_pages(2, 400, [0.6, 0.02]) for _ in range(2))
    done, nothing = refit([shard, Shard(1)], 0.05)
    refit([alone], 0.05)
    assert done.hosts.tolist() == [0, 1]
    assert nothing.hosts.size == nothing.pages.size == 0
    assert means_of(shard).tolist() == means_of(alone).tolist()


def test_shards_are_pooled_as_if_they_were_one():
    shards = [shard_of_pages(2, 200, [0.5, 0.1], seed=s, number=s) for s in (1, 2)]
    twins = [shard_of_pages(2, 200, [0.5, 0.1], seed=s, number=s) for s in (1, 2)]
    refit(twins, 0.05)
    factors = [twin.pages["factor"] for twin in twins]
    sums = [
        host_sums(
            np.flatnonzero(s.rings.seen[: len(s.pages)] > 0),
            s.pages["host"],
            2,
            s.pages["unsignalled_change_rate"],
            s.rings.evidence[: len(s.pages)],
            s.rings.posterior_shape[: len(s.pages)],
            s.rings.interval_days[: len(s.pages)],
            s.rings.signals[: len(s.pages)],
            s.rings.changed[: len(s.pages)],
            s.rings.seen[: len(s.pages)],
            s.hosts.priors,
            factor,
        )
        for s, factor in zip(shards, factors, strict=True)
    ]
    joined = type(sums[0])(*(np.concatenate(pair) for pair in zip(*sums, strict=True)))
    names = [name for shard in shards for name in shard.hosts.names]
    expected = fit_host_priors(joined, sites_of(names))
    refit(shards, 0.05)
    rates = np.concatenate([shard.hosts.priors.rate for shard in shards])
    np.testing.assert_allclose(rates, expected.rate)


PAGES = 640


def shard_of_one_site(*at_blog):
    """Of www.site.example a feed tells of the changes, and a scraper signals at random; its blog
    has one page with one record, and the same sources, in the order in which they came there."""
    rng, shard, records = np.random.default_rng(7), Shard(0), 12
    urls = [f"https://www.site.example/{page}" for page in range(PAGES)]
    shard.add_pages([(identify(url), 0.0) for url in [*urls, "https://blog.site.example/"]])
    shard.hosts.slots(np.array([0, 0, 1, 1]), ["feed", "scraper", *at_blog])
    rings, rows = shard.rings, np.arange(PAGES + 1)
    rings.seen[rows] = [*[records] * PAGES, 1]
    rings.interval_days[rows, :records] = 1.0
    rings.changed[:PAGES, :records] = rng.random((PAGES, records)) < 0.15
    rings.signals[:PAGES, :records, 0] = rings.changed[:PAGES, :records]
    rings.signals[:PAGES, :records, 1] = rng.random((PAGES, records)) < 0.5
    assign(shard, rows, fit(shard, rows))
    shard.pages["signal_evidence"] = mean_evidence(shard, rows, rings.evidence[rows])
    return shard


def surveyed(shards, material_change):
    """A refit by what surveys found."""
    nothing = Candidates(*np.zeros((2, 0), np.int64), np.zeros(0, np.int32), *np.zeros((2, 0)))
    found = [
        Looked(1, s.hosts.newcomer, list(s.hosts.names), sums_of(s), {}, nothing) for s in shards
    ]
    return take(found, shards, material_change)


@pytest.mark.parametrize("refitting", [refit, surveyed])
@pytest.mark.parametrize("at_blog", [("feed", "scraper"), ("scraper", "feed"), ("pinger", "feed")])
def test_a_host_hears_of_a_source_from_its_site_whichever_came_first(at_blog, refitting):
    shard = shard_of_one_site(*at_blog)

    for _ in range(4):
        refitting([shard], 0.05)

    expected = {"feed": 0.95, "scraper": LOWEST_PRECISION, "pinger": 0.5}
    precision = shard.hosts.priors.precision
    assert precision[0, :2] == pytest.approx([0.95, LOWEST_PRECISION], rel=0.06)
    assert precision[1, :2] == pytest.approx([expected[name] for name in at_blog], rel=0.06)


def test_sources_that_share_a_slot_have_those_of_their_site_behind_them():
    shard = shard_of_one_site("scraper", "feed")
    shard.hosts.slots(np.array([0, 0, 1, 1]), ["c", "d", "e", "f"])
    shard.rings.signals[:PAGES, :12, 3] = shard.rings.signals[:PAGES, :12, 1]

    refit([shard], 0.05)

    assert (shard.hosts.priors.precision[:, 3] == LOWEST_PRECISION).all()
    assert shard.hosts.priors.precision[1, 2] == 0.5


def with_quiet(shard, found, predicted, signals=9.0):
    """The shard, with what crawls of its hosts' quiet pages came to."""
    records, learning = shard.hosts.records, shard.hosts.learning
    count = len(shard.hosts.names)
    records["quiet_found"][:count], records["quiet_predicted"][:count] = found, predicted
    learning.signals[:count, 0], learning.precision[:count] = signals, 0.8
    return shard


def beliefs_of(shard):
    return shard.hosts.records["quiet_belief"][: len(shard.hosts.names)].tolist()


def on_one_site(number, hosts=2):
    shard = Shard(number)
    urls = [f"https://h{number}-{host}.site.example/" for host in range(hosts)]
    shard.add_pages([(identify(url), 0.0) for url in urls])
    return shard


def test_belief_in_quiet_pages_is_pooled_over_all_shards_of_the_process():
    shards = [
        with_quiet(on_one_site(0), [0.0, 2.0], [30.0, 4.0]),
        with_quiet(on_one_site(1, hosts=1), [0.0], [0.0], signals=0.0),
    ]

    moved = set_beliefs(shards)

    everything = (5.0 + 2.0) / (5.0 + 34.0)
    site = (5.0 * everything + 2.0) / (5.0 + 34.0)
    expected = [0.2, (5.0 * site + 2.0) / 9.0, 0.2]
    assert [*beliefs_of(shards[0]), *beliefs_of(shards[1])] == pytest.approx(expected)
    assert [part.tolist() for part in moved] == [[True, True], [True]]
    assert [part.tolist() for part in set_beliefs(shards)] == [[False, False], [False]]


def test_a_process_with_some_of_the_shards_goes_by_what_it_has():
    alone = with_quiet(on_one_site(1), [3.0, 0.0], [6.0, 0.0])

    set_beliefs([alone])

    everything = (5.0 + 3.0) / (5.0 + 6.0)
    site = (5.0 * everything + 3.0) / 11.0
    assert beliefs_of(alone) == pytest.approx([(5.0 * site + 3.0) / 11.0, site])


def test_a_belief_that_hardly_moves_stays():
    shard = with_quiet(on_one_site(0), [1.0, 1.0], [9.0, 9.0])
    set_beliefs([shard])
    before = beliefs_of(shard)
    shard.hosts.records["quiet_predicted"] += 0.01

    assert not set_beliefs([shard])[0].any()
    assert beliefs_of(shard) == before


def test_a_refit_tells_of_hosts_whose_quiet_pages_are_believed_less():
    shard = shard_of_pages(2, 400, [0.3, 0.3])
    for _ in range(30):
        refit([shard], 0.05)
    with_quiet(shard, [0.0, 0.0], [50.0, 0.0])
    shard.hosts.learning.precision[:2] = 0.5
    rows = np.arange(2)
    before, rates = shard.hosts.figures(rows), shard.pages["unsignalled_change_rate"].copy()

    [done] = refit([shard], 0.05)

    assert 0 in done.hosts
    after = shard.hosts.figures(rows)
    assert after[0, 0] == pytest.approx(0.2 * before[0, 0], rel=0.02)
    never = 2 + SOURCES
    assert after[0, never] == pytest.approx(0.2 * before[0, never])
    assert (after[:, never + 1 :] == before[:, never + 1 :]).all()
    np.testing.assert_array_equal(shard.pages["unsignalled_change_rate"], rates)


def test_a_new_host_is_believed_until_a_refit_knows_its_site():
    shard = with_quiet(on_one_site(0), [0.0, 0.0], [50.0, 50.0])
    set_beliefs([shard])

    row = shard.hosts.row_or_new("new.site.example")

    assert beliefs_of(shard)[row] == 1.0
    set_beliefs([shard])
    assert beliefs_of(shard)[row] == 0.2


def test_pages_follow_their_hosts_and_only_as_far_as_it_matters():
    shard = shard_of_pages(1, 400, [0.7])
    before = shard.pages["unsignalled_change_rate"].copy()
    [done] = refit([shard], 0.05)
    after = shard.pages["unsignalled_change_rate"]
    moved = np.flatnonzero(np.abs(after - before) > 0.05 * before)
    assert done.pages.tolist() == moved.tolist() != []
    others = np.setdiff1d(np.arange(400), done.pages)
    np.testing.assert_array_equal(after[others], before[others])
    assert np.isnan(after[::4]).all(), "pages without a record have no rate of their own"


def test_a_refit_that_finds_nothing_new_moves_nothing():
    shard = shard_of_pages(3, 600, [0.5, 0.2, 0.05])
    for _ in range(30):
        [done] = refit([shard], 0.05)
    assert done.hosts.size == done.pages.size == 0


def test_the_pages_that_know_least_follow_first(monkeypatch):
    monkeypatch.setattr("services.estimator.refitting.MOST_PAGES", 10)
    shard = shard_of_pages(1, 400, [0.7])
    shard.rings.seen[1] = 1
    [done] = refit([shard], 0.05)
    assert MOST_PAGES > 10 >= done.pages.size
    assert 1 in done.pages


def test_the_first_refit_comes_soon_and_later_ones_by_time_or_when_much_was_seen():
    refits, shard = Refits(2.0), Shard(0)
    shard.records = FIRST_RECORDS - 1
    assert not refits.are_due([shard], 0.0)
    shard.records = FIRST_RECORDS
    assert refits.are_due([shard], 0.0)
    refits.noted([shard], 0.0, 0.0)
    assert not refits.are_due([shard], 1.9 * DAY)
    assert refits.are_due([shard], 2.0 * DAY)
    shard.records = 2 * FIRST_RECORDS
    assert refits.are_due([shard], 0.1 * DAY)


def test_refits_take_a_small_share_of_the_time():
    refits, shard = Refits(2.0), Shard(0)
    shard.records = 10**6
    refits.noted([shard], 0.0, 1e9)
    assert not refits.are_due([shard], 1e9 * DAY)


def test_a_refit_adds_to_the_effects_of_a_batch():
    shard, other = (shard_of_pages(1, 40, [0.7], number=n) for n in (1, 0))
    batch = ShardEffects.nothing(shard)
    both = merged({1: batch}, [other, shard], refit([other, shard], 0.05))
    assert [effects.shard for effects in both] == [other, shard]
    for effects in both:
        assert effects.counted_hosts.tolist() == [0]
        assert (np.diff(effects.shard.pages["page_id"][effects.touched]) > 0).all()
        assert effects.touched.size > 0
