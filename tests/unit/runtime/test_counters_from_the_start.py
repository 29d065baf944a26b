"""What a reader counts of its topics is there as 0 before it counts: so that a rise can be seen."""

from dataclasses import replace
from unittest import mock

import pytest
from prometheus_client import REGISTRY

from shared.contracts.topics import SIGNALS
from shared.runtime.consumer import BatchConsumer
from shared.runtime.group_reading import GroupReader
from shared.runtime.settings import Settings

READ = {"freshet_messages_consumed_total", "freshet_stream_gap_records_total"}
DONE = {"freshet_messages_handled_total", "freshet_late_records_total"}


def batch_consumer(settings, topic):
    return BatchConsumer(settings, "group", (topic,), handler=None)


def group_reader(settings, topic):
    return GroupReader(settings, "group", [topic], handle=None, gathered_seconds=0.0)


@pytest.mark.parametrize(
    ("reader", "counters"), [(batch_consumer, READ | DONE), (group_reader, READ)]
)
def test_a_counter_of_a_topic_is_there_from_the_start(monkeypatch, reader, counters):
    for module in ("consumer", "group_reading"):
        monkeypatch.setattr(f"shared.runtime.{module}.make_consumer", mock.MagicMock())
    topic = replace(SIGNALS, name=f"never-read-by-a-{reader.__name__}")

    def shown():
        samples = [sample for family in REGISTRY.collect() for sample in family.samples]
        return {
            sample.name: sample.value
            for sample in samples
            if sample.labels.get("topic") == topic.name and sample.name.endswith("_total")
        }

    assert shown() == {}
    reader(Settings(topic_prefix="some-"), topic)
    assert shown() == dict.fromkeys(counters, 0.0)
