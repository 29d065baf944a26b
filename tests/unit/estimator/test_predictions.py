"""What is noted of a crawl before it is learned from."""

import numpy as np
import pytest
from aiokafka import ConsumerRecord
from prometheus_client import REGISTRY

from services.estimator.application import apply_records
from services.estimator.comparing import count_predictions
from services.estimator.learning import learn
from services.estimator.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlOutcome, PageSignal, PageUpdate
from shared.policy.estimation.prediction import expected_fresh_days
from shared.runtime.acceptance import Acceptance
from shared.store.writer import Observations

DAY = 86_400.0
URL = "https://news.example/a"
PAGE = identify(URL)


def apply(shard, **topics):
    """Apply messages in one batch; the observations."""
    records = {
        name.replace("_", "-"): [
            ConsumerRecord(name, 0, 0, 1000, 0, None, encode(message), None, -1, -1, ())
            for message in messages
        ]
        for name, messages in topics.items()
    }
    done = apply_records(shard, records, Acceptance(100 * DAY, 101 * DAY, True), 0.0)
    learn(done)
    return done.observations


def crawl(day, result="unchanged"):
    return CrawlOutcome(URL, day * DAY, result=result)


def signal(day, source="feed"):
    return PageSignal(PAGE.page_id, PAGE.url, PAGE.host, source, day * DAY)


@pytest.fixture
def shard():
    """With one page, which was crawled on day 1."""
    shard = Shard(0)
    apply(shard, page_updates=[PageUpdate("upsert", URL, updated_at=0.0)])
    apply(shard, crawl_outcomes=[crawl(1)])
    return shard


def prior_rate(shard):
    return float(shard.hosts.records["prior_shape"][0] / shard.hosts.records["prior_rate"][0])


def test_a_first_record_was_predicted_by_the_prior_of_its_host(shard):
    rate = prior_rate(shard)
    found = apply(shard, crawl_outcomes=[crawl(5, "changed")])
    assert found.staleness == pytest.approx([4 * rate])
    assert found.fresh_days == pytest.approx([expected_fresh_days(rate, 4.0, 0.0, 0, 0.0)])
    assert found.sources.tolist() == [0]


def test_directories_and_activity_are_in_a_prediction(shard):
    shard.pages["factor"][0] = 3.0
    assert apply(shard, crawl_outcomes=[crawl(5)]).staleness == pytest.approx(
        [3 * 4 * prior_rate(shard)]
    )


def test_a_crawl_is_predicted_by_what_was_known_before_it(shard):
    apply(shard, crawl_outcomes=[crawl(5, "changed")])
    known = float(shard.pages["unsignalled_change_rate"][0])
    found = apply(shard, crawl_outcomes=[crawl(6, "changed")])
    assert known != shard.pages["unsignalled_change_rate"][0]
    assert found.staleness == pytest.approx([known])


def test_crawls_of_one_batch_are_predicted_by_what_was_known_before_it(shard):
    apply(shard, crawl_outcomes=[crawl(5, "changed")])
    known = float(shard.pages["unsignalled_change_rate"][0])
    found = apply(shard, crawl_outcomes=[crawl(day, "changed") for day in (6, 8, 11)])
    assert found.staleness == pytest.approx([known, 2 * known, 3 * known])


def test_bursts_are_in_a_prediction(shard):
    apply(shard, crawl_outcomes=[crawl(5, "changed")])
    shard.rings.multiplier[0] = 4.0
    known = float(shard.pages["unsignalled_change_rate"][0])
    assert apply(shard, crawl_outcomes=[crawl(6)]).staleness == pytest.approx([4 * known])


def test_signals_are_in_a_prediction_each_with_its_source(shard):
    evidence = -np.log1p(-shard.hosts.learning.precision[0, 0])
    rate = prior_rate(shard)
    signals = [signal(2), signal(3), signal(4, "ping")]
    found = apply(shard, page_signals=signals, crawl_outcomes=[crawl(5)])
    of_ping = -np.log1p(-shard.hosts.learning.precision[0, 1])
    whole = 2 * evidence + of_ping
    assert found.staleness == pytest.approx([4 * rate + whole])
    assert found.fresh_days == pytest.approx([expected_fresh_days(rate, 4.0, whole, 3, 3.0)])
    assert found.sources.tolist() == [0b11]


def test_signals_after_a_crawl_are_not_in_its_prediction(shard):
    apply(shard, page_signals=[signal(6)])
    found = apply(shard, crawl_outcomes=[crawl(5)])
    assert found.staleness == pytest.approx([4 * prior_rate(shard)])
    assert found.sources.tolist() == [0]
    assert apply(shard, crawl_outcomes=[crawl(7)]).sources.tolist() == [1]


def test_predicted_and_found_changes_are_counted_by_decile():
    def counted(kind):
        name = f"freshet_estimator_{kind}_changes_total"
        return np.array([REGISTRY.get_sample_value(name, {"decile": str(d)}) for d in range(10)])

    predicted, found = counted("predicted"), counted("found")
    crawls = Observations.none()
    chances = np.array([0.05, 0.05, 0.95, 1.0])
    with np.errstate(divide="ignore"):
        crawls.staleness.resize(4, refcheck=False)
        crawls.staleness[:] = -np.log1p(-chances)
    crawls.changed.resize(4, refcheck=False)
    crawls.changed[:] = [False, True, True, True]
    count_predictions(crawls)
    assert counted("predicted") - predicted == pytest.approx([0.1, *[0] * 8, 1.95])
    assert (counted("found") - found).tolist() == [1, *[0] * 8, 2]
