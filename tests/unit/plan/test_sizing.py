"""What a plan says is enough, also without a replica; and who wants more never gets less."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.plan import sizing
from services.plan.coefficients import KNOWN, read_measured
from services.plan.servers import Load, kept_seconds
from services.plan.sizing import GI, TooLarge, Wanted, plan
from shared.contracts.topics import CRAWL_OUTCOMES, CRAWL_REQUESTS, MULTIPLIERS, TOPICS
from shared.units import SECONDS_PER_DAY

COST = {name: coefficient.value for name, coefficient in read_measured().items()}
RESIDENT = 1e6
NONE = dict.fromkeys(KNOWN, 0.0)


def wanted(pages=1e9, crawls=1e4, memory=32.0, signals=None, hosts=None, days=None, copies=3):
    signals = crawls / 2 if signals is None else signals
    hosts = pages / 40 if hosts is None else hosts
    load = Load(pages, hosts, crawls, signals, 180.0, days, copies)
    return Wanted(load, memory * GI, 10.0, RESIDENT)


def needs(sizes):
    """Everything that a plan says is needed, by name."""
    found = {"shards": sizes.shards}
    for name, worker in sizes.workers.items():
        found[f"{name} replicas"] = worker.replicas
        found[f"{name} cores"] = worker.used_cores
        found[f"{name} memory"] = worker.used_memory_bytes
    postgres, kafka = sizes.postgres, sizes.kafka
    for name in ("cores", "memory_bytes", "connections", "log_bytes_per_second"):
        found[f"postgres {name}"] = getattr(postgres, name)
    found |= {f"postgres {part} disk": size for part, size in postgres.disk_bytes.items()}
    for name, topic in kafka.topics.items():
        found[f"{name} partitions"] = topic.partitions
        found[f"{name} disk"] = topic.disk_bytes
        found[f"{name} read"] = topic.read_bytes_per_second
    found["kafka received"] = kafka.received_bytes_per_second
    found["kafka sent"] = kafka.sent_bytes_per_second
    return found


@settings(max_examples=200, deadline=None)
@given(st.floats(1, 1.6e10), st.floats(0.01, 1e6), st.floats(1, 512))
def test_a_replica_may_be_away_and_the_others_hold_all_pages(pages, crawls, memory):
    asked = wanted(pages, crawls, memory)
    try:
        sizes = plan(asked, COST)
    except TooLarge:
        return
    for name in ("scheduler", "estimator"):
        worker = sizes.workers[name]
        assert 2 <= worker.replicas <= sizes.shards
        serving = worker.replicas - 1
        shards = math.ceil(sizes.shards / serving)
        held = shards * (pages / sizes.shards)
        hosts = 0.0
        if name == "estimator":
            hosts = shards * (pages / 40 / sizes.shards) * COST["estimator_host_bytes"]
            held = min(held, RESIDENT)
        needed = COST[f"{name}_base_bytes"] + held * COST[f"{name}_page_bytes"] + hosts
        assert needed < worker.memory_bytes <= asked.memory_bytes * (1 + 1e-9)
        assert worker.used_cores <= worker.replicas * worker.cores
    assert pages / sizes.shards <= sizing.MOST_PAGES_A_SHARD
    assert sizes.workers["ingester"].replicas >= 2
    assert sizes.workers["coordinator"].replicas == 2


def test_a_coordinator_has_room_for_the_processes_that_look_things_up_for_its_page():
    coordinator = plan(wanted(), COST).workers["coordinator"]
    views = sizing.VIEWS * sizing.VIEW_BYTES
    assert coordinator.memory_bytes > 1.2 * (COST["coordinator_base_bytes"] + views)


@settings(max_examples=300, deadline=None)
@given(
    st.floats(1, 5e9),
    st.floats(0.01, 1e5),
    st.floats(0, 1e5),
    st.tuples(*[st.sampled_from([1.0, 1.0, 1.01, 1.9, 2.0, 10.0]) for _ in range(4)]),
)
def test_who_wants_more_never_gets_less(pages, crawls, signals, factors):
    more_pages, more_crawls, more_signals, more_hosts = factors
    asked = wanted(pages, crawls, 32.0, signals)
    load = asked.load
    more = replace(
        load,
        pages=load.pages * more_pages,
        crawls=load.crawls * more_crawls,
        signals=load.signals * more_signals,
        hosts=load.hosts * more_hosts,
    )
    try:
        large = needs(plan(replace(asked, load=more), COST))
    except TooLarge:
        return
    small = needs(plan(asked, COST))
    less = {name for name, value in small.items() if large[name] < value * (1 - 1e-12)}
    assert not less


def test_crossing_a_number_of_shards_takes_no_replica_away():
    # Where shards double they are finer, and pack better: that must not make replicas fewer.
    edge = sizing.LEAST_SHARDS * float(sizing.MOST_PAGES_A_SHARD)
    cost = COST | {"scheduler_page_bytes": 440.0, "estimator_page_bytes": 600.0}
    before, after = (needs(plan(wanted(edge * f, 1.0, 8.0), cost)) for f in (1.0, 1.001))
    assert (before["shards"], after["shards"]) == (64, 128)
    assert not {name for name, value in before.items() if after[name] < value}


def test_a_billion_pages_are_a_plan():
    sizes = plan(wanted(), COST)
    assert sizes.shards == 256
    # By hand: all pages, a quarter more, over 32 GiB a replica.
    least = 1e9 * COST["scheduler_page_bytes"] * 1.25 / (32 * GI)
    assert least < sizes.workers["scheduler"].replicas < 1.3 * least + 2


def test_figures_add_up():
    cost = NONE | {
        "scheduler_base_bytes": 100.0,
        "scheduler_page_bytes": 10.0,
        "scheduler_cores_a_crawl": 1e-3,
        "scheduler_cores_a_signal": 1e-4,
        "scheduler_base_cores": 0.1,
        "scheduler_load_seconds_a_page": 1e-5,
        "postgres_load_seconds_a_page": 2e-5,
        "handover_seconds": 3.0,
    }
    sizes = plan(wanted(pages=64e6, crawls=1000.0, signals=500.0), cost)
    worker = sizes.workers["scheduler"]
    # 1.05 cores of work, of which a replica does 0.4 beside its own 0.1: three, and one to spare.
    assert worker.replicas == 4
    assert worker.used_cores == pytest.approx(1.05 + 4 * 0.1)
    assert worker.cores == 1.0
    assert worker.used_memory_bytes == pytest.approx(4 * 100 + 64e7)
    # 64 shards of a million pages: three replicas have 22 of them at most.
    assert worker.memory_bytes == pytest.approx(1.25 * (100 + 22e6 * 10))
    # The dead one's 16 shards go to three others, six of them to one.
    assert sizes.failover_seconds == pytest.approx(10 + 3 + 6e6 * 1e-5)
    # PostgreSQL has the cores to hand all pages out in ten minutes; schedulers need less for 16
    # shards each.
    assert sizes.postgres.cores == pytest.approx(64e6 * 2e-5 / 600)
    assert sizes.start_seconds == pytest.approx(600)


def test_topics_add_up_to_what_the_brokers_hold_and_carry():
    cost = NONE | {
        "crawl_requests_records_a_crawl": 1.0,
        "crawl_requests_bytes": 200.0,
        "crawl_outcomes_records_a_crawl": 1.0,
        "crawl_outcomes_bytes": 100.0,
        "page_parameters_records_a_crawl": 0.25,
        "page_parameters_records_a_signal": 0.5,
        "page_parameters_bytes": 40.0,
    }
    sizes = plan(wanted(pages=1e6, crawls=100.0, signals=50.0), cost)
    topics = sizes.kafka.topics
    assert set(topics) == {topic.name for topic in TOPICS}
    assert topics["crawl-requests"].bytes_per_second == 2e4
    assert topics["page-parameters"].records_per_second == 50.0
    assert topics["crawl-outcomes"].read_bytes_per_second == 2 * 1e4
    assert topics["crawl-outcomes"].disk_bytes == 1.5 * 3 * 1e4 * 7 * SECONDS_PER_DAY
    written = 2e4 + 1e4 + 2e3
    assert sizes.kafka.received_bytes_per_second == 3 * written
    assert sizes.kafka.sent_bytes_per_second == 2e4 + 2 * 1e4 + 2e3 + 2 * written
    assert sizes.kafka.disk_bytes == sum(topic.disk_bytes for topic in topics.values())
    shards = {topic.name for topic in TOPICS if topic.partitioning != "single"}
    assert {name for name, topic in topics.items() if topic.partitions == 64} == shards


def test_days_that_are_chosen_are_those_of_what_is_kept_long():
    assert kept_seconds(CRAWL_OUTCOMES, None) == 7 * SECONDS_PER_DAY
    assert kept_seconds(CRAWL_OUTCOMES, 2.0) == 2 * SECONDS_PER_DAY
    assert kept_seconds(CRAWL_REQUESTS, 30.0) == SECONDS_PER_DAY
    assert kept_seconds(MULTIPLIERS, 30.0) == 3600.0


def test_the_log_holds_an_image_of_each_block_and_checkpoint_at_most():
    cost = NONE | {"pages_disk_bytes": 1024.0, "log_block_bytes": 8000.0, "log_crawl_bytes": 300.0}

    def log(pages, crawls):
        asked = wanted(pages=pages, crawls=crawls, signals=0.0)
        return plan(asked, cost).postgres.log_bytes_per_second

    # Many pages: hardly a block is changed twice. Few: each is, and has one image in 900 s.
    assert log(1e9, 10.0) == pytest.approx(10 * (300 + 8000), rel=1e-3)
    assert log(8e4, 1000.0) == pytest.approx(1000 * 300 + 1e4 * 8000 / 900, rel=1e-3)


def test_what_does_not_fit_is_said():
    with pytest.raises(TooLarge, match=r"than the 1.6384e\+10 .*--pages.*several installations"):
        plan(wanted(pages=1e12), COST)
    with pytest.raises(TooLarge, match=r"more than 4096 replicas.*--memory"):
        plan(wanted(pages=1.6e10, memory=2.6, hosts=1e6), COST)
    with pytest.raises(TooLarge, match="--memory"):
        plan(wanted(pages=1e9, memory=1.0), COST)


def test_every_coefficient_counts():
    # Large, next to nothing, many crawls of few pages, and few of many: what rules a start differs.
    sizes = ((1e9, 1e6), (1e3, 1.0), (1e7, 1e5), (1e9, 1e3))
    installations = [wanted(pages, crawls) for pages, crawls in sizes]
    as_measured = [plan(asked, COST) for asked in installations]
    for name, value in COST.items():
        changed = COST | {name: 1.5 * value + 1e-9}
        plans = [plan(asked, changed) for asked in installations]
        assert plans != as_measured, f"{name} changes nothing"
