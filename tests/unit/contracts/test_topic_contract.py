"""The topics of the contract: names, keys and what compaction needs of them."""

import pytest

from shared.contracts.topic_safety import UNCOMPACTED_MS, requirements_of
from shared.contracts.topics import CRAWL_OUTCOMES, DEAD_LETTERS, HOST_LIMITS, TOPICS
from shared.runtime.kafka import partitions_of
from shared.runtime.settings import Settings


def test_names_are_unique():
    assert len({topic.name for topic in TOPICS}) == len(TOPICS) == 15


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_host_keyed_topics_have_a_partition_a_shard_and_the_others_one(topic):
    expected = {"shards": 6, "any": 6, "single": 1}[topic.partitioning]
    assert partitions_of(topic, Settings(partitions=6)) == expected
    if topic.partitioning == "shards":
        assert topic.key == "host"
        assert "host" in topic.message.__struct_fields__ or topic.name == "page-updates"


def test_what_stands_for_ever_is_compacted_and_the_rest_is_kept_for_a_time():
    standing = {"bandwidth", "multipliers", "host-limits", "group-limits"}
    assert {t.name for t in TOPICS if t.compacted} == standing
    assert all(int(t.config["retention.ms"]) > 0 for t in TOPICS if not t.compacted)
    assert DEAD_LETTERS.message is None


def test_what_is_about_one_rule_of_a_host_is_not_compacted_before_it_is_read():
    # A block, say, and then a crawl-delay, of the same key, while estimators are away.
    assert "only" in HOST_LIMITS.message.__struct_fields__
    for topic in TOPICS:
        lags = [r for r in requirements_of(topic) if r.setting == UNCOMPACTED_MS]
        assert bool(lags) == (topic is HOST_LIMITS)
    [lag] = [r for r in requirements_of(HOST_LIMITS) if r.setting == UNCOMPACTED_MS]
    assert int(lag.wanted) >= int(CRAWL_OUTCOMES.config["retention.ms"])
    assert "up to 7 days" in lag.promise
    assert not lag.holds("0")
