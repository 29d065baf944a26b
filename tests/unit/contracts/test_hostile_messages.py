"""No bytes on any topic make a reader fail: they are taken, or refused with a reason."""

import numpy as np
import pytest
from aiokafka import ConsumerRecord
from hostile_messages import hostile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from services.coordinator.core import Coordination, Moment
from services.estimator.application import apply_records
from services.estimator.learning import learn, material_news
from services.estimator.shard import Shard as LearningShard
from services.scheduler.flow.reader import TOPIC_ORDER, Reader
from services.scheduler.picking.calendar import make_shard
from services.scheduler.state.rules import PickingRules, ShardRules
from shared.contracts.codec import BadMessage, decode, encode
from shared.contracts.identity import identify
from shared.contracts.messages import Bandwidth, DemandCurve, Multipliers, PageUpdate
from shared.contracts.topics import PAGE_UPDATES, TOPICS
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.runtime.acceptance import Acceptance

NOW = 1.7e9
KINDS = {topic.name: topic.message for topic in TOPICS if topic.message is not None}
PAGES = ["https://a.example/", "https://a.example/b", "http://[::1]/"]
FUZZ = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def record(value: bytes | None, key: bytes | None = None) -> ConsumerRecord:
    return ConsumerRecord("t", 0, 0, int(NOW * 1000), 0, key, value, None, -1, -1, ())


def acceptance() -> Acceptance:
    return Acceptance(NOW, NOW + 300.0, record_times_count=True)


@pytest.mark.parametrize("name", list(KINDS))
@settings(max_examples=150, **FUZZ)
@given(data=st.data())
def test_what_is_taken_can_be_sent_on_and_is_taken_again(name, data):
    value = data.draw(hostile(KINDS[name]))
    try:
        message = decode(KINDS[name], value)
    except BadMessage:
        return
    assert decode(KINDS[name], encode(message)) == message


@pytest.mark.slow(1)
@settings(max_examples=150, **FUZZ)
@given(data=st.data())
def test_the_scheduler_reads_on(data):
    shard = make_shard(0, ShardRules(PickingRules(120.0, 1.0), 0.0, 300.0, float("inf"), 1.0))
    for url in PAGES:
        shard.upsert(identify(url), PageUpdate("upsert", url), 1e9)
    reader = Reader(acceptance())
    for topic in data.draw(st.lists(st.sampled_from(TOPIC_ORDER), min_size=1, max_size=6)):
        values = data.draw(st.lists(hostile(KINDS[topic]) | st.none(), min_size=1, max_size=4))
        key = data.draw(st.none() | st.binary(max_size=9) | st.just(b"a.example"))
        reader.apply(shard, topic, [record(value, key) for value in values])
    picks = shard.selector.select(NOW + np.arange(1.0, 9.0), 1.0, 0.0)
    assert picks.size == 8
    assert (picks["row"] < shard.used).all()


@pytest.mark.slow(1)
@settings(max_examples=150, **FUZZ)
@given(data=st.data())
def test_the_estimator_reads_on_and_learns_numbers(data):
    shard = LearningShard(0)
    add = [record(encode(PageUpdate("upsert", url, updated_at=1e9))) for url in PAGES]
    apply_records(shard, {PAGE_UPDATES.name: add}, acceptance(), 0.0)
    topics = ["page-updates", "page-signals", "crawl-outcomes", "host-limits"]
    batch = {}
    for topic in data.draw(st.lists(st.sampled_from(topics), min_size=1, unique=True)):
        values = data.draw(st.lists(hostile(KINDS[topic]) | st.none(), min_size=1, max_size=5))
        batch[topic] = [
            record(value, data.draw(st.none() | st.binary(max_size=9))) for value in values
        ]
    done = apply_records(shard, batch, acceptance(), 0.0)
    learn(done)
    material_news(done, 0.05, NOW)
    assert all(refused.reason for refused in done.refused)
    learned = shard.pages["unsignalled_change_rate"]
    assert ((learned >= 0) | np.isnan(learned)).all()
    assert (shard.pages["signal_rate"] >= 0).all()


@settings(max_examples=150, **FUZZ)
@given(values=st.lists(hostile(Multipliers), min_size=1, max_size=3))
def test_a_timeline_of_slots_goes_on(values):
    timeline = SlotTimeline()
    for value in values:
        try:
            timeline.add(SlotPlan.from_message(decode(Multipliers, value)))
        except BadMessage:
            continue
    times, owners = timeline.between(NOW, NOW + 0.05)
    assert times.size == owners.size
    assert ((times > NOW - 1e-3) & (times <= NOW + 0.05 + 1e-3)).all()


@pytest.mark.slow(0.5)
@settings(max_examples=150, **FUZZ)
@given(data=st.data())
def test_the_coordinator_goes_on_deciding(data):
    core = Coordination(silent_after_seconds=5.0, lead_seconds=0.3)
    core.lead(1, "one")
    core.receive_bandwidth(Bandwidth(5.0))
    moment = Moment(NOW, 1000.0, 1.0)
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from([DemandCurve, Bandwidth, Multipliers]))
        try:
            message = decode(kind, data.draw(hostile(kind)))
            if kind is DemandCurve:
                core.receive_demand(message, 1000.0, moment)
            elif kind is Bandwidth:
                core.receive_bandwidth(message)
            else:
                core.receive_multipliers(message, moment)
        except BadMessage:
            continue
    decided = core.next(moment)
    if decided is not None:
        assert decode(Multipliers, encode(decided)) == decided
