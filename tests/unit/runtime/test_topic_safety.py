"""What is said of a topic's settings and replicas, and what may be altered of them."""

from dataclasses import replace

import pytest

from shared.contracts.topic_safety import IN_SYNC, least_in_sync, requirements_of
from shared.contracts.topics import BANDWIDTH, CRAWL_OUTCOMES, MULTIPLIERS, SIGNALS, TOPICS
from shared.runtime.findings import Finding, gathered
from shared.runtime.settings import Settings
from shared.runtime.topic_safety import TopicState, changes, judge

APACHE = {
    "cleanup.policy": "delete",
    "message.timestamp.type": "CreateTime",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""What a topic of Apache Kafka has that says nothing else."""

SETTINGS = Settings(replication_factor=3)


def state_of(topic, replicas: int = 3, **changed: str) -> TopicState:
    """A topic as `ensure_topics` makes it, but for some settings."""
    own = {IN_SYNC: str(least_in_sync(replicas)), **topic.config}
    own |= {name.replace("_", "."): value for name, value in changed.items()}
    return TopicState(topic.name, 4, replicas, replicas, 0, APACHE | own, own)


def found(topic, state: TopicState, brokers: int = 3) -> list[tuple[str, str]]:
    return [(f.level, f.found) for f in judge(topic, state, brokers, SETTINGS)]


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_nothing_is_amiss_with_topics_as_they_are_made(topic):
    state = state_of(topic)
    assert found(topic, state) == []
    assert list(changes(topic, state)) == []


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_each_topic_rests_on_how_it_is_cleaned_up(topic):
    assert any(r.setting == "cleanup.policy" for r in requirements_of(topic))
    for requirement in requirements_of(topic):
        assert requirement.promise


@pytest.mark.parametrize("policy", ["delete", "compact,delete", "delete, compact"])
def test_a_budget_that_would_be_forgotten_is_a_risk(policy):
    state = state_of(BANDWIDTH, cleanup_policy=policy)
    (finding,) = judge(BANDWIDTH, state, 3, SETTINGS)
    assert (finding.level, finding.wanted) == ("risk", "cleanup.policy=compact")
    assert "the budget stands until an operator changes it" in finding.promise
    assert [(c.setting, c.value) for c in changes(BANDWIDTH, state)] == [
        ("cleanup.policy", "compact")
    ]


@pytest.mark.parametrize("topic", [SIGNALS, MULTIPLIERS], ids=lambda topic: topic.name)
def test_arrival_that_producers_choose_is_a_risk(topic):
    state = state_of(topic, message_timestamp_type="CreateTime")
    assert found(topic, state) == [("risk", "message.timestamp.type=CreateTime")]


@pytest.mark.parametrize(
    ("kept", "safe"), [("604800000", True), ("604799999", False), ("-1", True), ("soon", False)]
)
def test_what_is_kept_too_short_is_a_risk_and_longer_is_not(kept, safe):
    state = state_of(CRAWL_OUTCOMES, retention_ms=kept)
    assert found(CRAWL_OUTCOMES, state) == ([] if safe else [("risk", f"retention.ms={kept}")])
    (finding,) = judge(CRAWL_OUTCOMES, state, 3, SETTINGS) or [Finding("ok", "", "")]
    assert safe or "7 days" in finding.promise


def test_a_limit_of_size_is_a_risk_that_people_decide_about():
    state = state_of(CRAWL_OUTCOMES, retention_bytes="1000000000")
    assert found(CRAWL_OUTCOMES, state) == [("risk", "retention.bytes=1000000000")]
    assert list(changes(CRAWL_OUTCOMES, state)) == []


def test_a_compacted_stream_loses_messages():
    state = state_of(CRAWL_OUTCOMES, cleanup_policy="compact")
    assert found(CRAWL_OUTCOMES, state) == [("risk", "cleanup.policy=compact")]


@pytest.mark.parametrize(
    ("replicas", "in_sync", "said"),
    [
        (3, 2, []),
        (3, 1, ["min.insync.replicas=1 of 3 replicas"]),
        (3, 3, ["min.insync.replicas=3 of 3 replicas"]),
        (5, 2, []),
        (5, 5, ["min.insync.replicas=5 of 5 replicas"]),
        (2, 1, ["replication factor 2"]),
        (1, 1, ["replication factor 1"]),
    ],
)
def test_a_broker_may_be_lost_only_with_enough_replicas(replicas, in_sync, said):
    state = state_of(BANDWIDTH, replicas, min_insync_replicas=str(in_sync))
    assert found(BANDWIDTH, state) == [("risk", one) for one in said]
    fixes = [c.setting for c in changes(BANDWIDTH, state)]
    assert fixes == ([IN_SYNC] if any(one.startswith("min") for one in said) else [])


def test_with_a_single_broker_nothing_is_promised_about_losing_one():
    state = state_of(CRAWL_OUTCOMES, 1, retention_bytes="1000000000")
    levels = {level for level, _ in found(CRAWL_OUTCOMES, state, brokers=1)}
    assert levels == {"note"}


def test_a_replica_that_is_away_is_told_of():
    state = state_of(BANDWIDTH)
    assert found(BANDWIDTH, replace(state, in_sync=2)) == [("risk", "2 of 3 replicas are in sync")]
    wide = state_of(BANDWIDTH, 5, min_insync_replicas="2")
    assert found(BANDWIDTH, replace(wide, in_sync=4)) == [("note", "4 of 5 replicas are in sync")]
    assert found(BANDWIDTH, replace(state, in_sync=0, leaderless=3)) == [
        ("risk", "3 partitions have no leader")
    ]


def test_settings_that_may_not_be_read_are_a_note():
    state = replace(state_of(BANDWIDTH), config={}, own={})
    assert found(BANDWIDTH, state) == [("note", "its settings may not be read")]
    assert list(changes(BANDWIDTH, state)) == []


def test_what_is_the_same_of_several_topics_is_said_once():
    same = [Finding("note", name, "x") for name in ("a", "b")]
    worse = Finding("risk", "c", "y")
    assert gathered([*same, worse]) == [worse, Finding("note", "a, b", "x")]
