"""Prometheus metrics that every worker has; each worker's own are in its folder."""

from collections.abc import Iterable

from prometheus_client import Counter, Gauge, Histogram

MESSAGES_CONSUMED = Counter(
    "freshet_messages_consumed_total", "Records read from Kafka.", ["topic"]
)
MESSAGES_HANDLED = Counter(
    "freshet_messages_handled_total",
    "Records that are done with: applied, or set aside.",
    ["topic"],
)
LATE_RECORDS = Counter(
    "freshet_late_records_total",
    "Records that were done with more than a minute after they had been written.",
    ["topic"],
)
MESSAGES_PUBLISHED = Counter(
    "freshet_messages_published_total", "Records acknowledged by Kafka.", ["topic"]
)
DEAD_LETTERS = Counter(
    "freshet_dead_letters_total", "Messages that could not be taken.", ["stage", "topic"]
)
HALTED = Gauge(
    "freshet_halted",
    "1: reading has stopped, as too many messages of the topic are bad.",
    ["topic"],
)
STREAM_GAP = Counter(
    "freshet_stream_gap_records_total",
    "Offsets that were gone before they were read: records lost to retention or to an operator.",
    ["topic"],
)
STREAM_BROKEN = Gauge(
    "freshet_stream_broken",
    "1: reading has stopped, as the topic does not continue what was read of it.",
    ["topic"],
)
BATCH_SECONDS = Histogram(
    "freshet_batch_seconds",
    "Time from the end of reading a batch to the end of its effects.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
LOOP_LAG_SECONDS = Histogram(
    "freshet_loop_lag_seconds",
    "How much later than asked the event loop woke a sleeper: it was blocked.",
    buckets=(0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.3, 1, 3),
)
LOOP_LAG_MAX_SECONDS = Gauge(
    "freshet_loop_lag_max_seconds", "The longest that the event loop was blocked of late."
)
NOT_READY = Gauge("freshet_not_ready", "1: the worker does not do its work; /readyz says why.")
BROKER_AWAY = Gauge("freshet_broker_away", "1: no broker answers.")
DATABASE_AWAY = Gauge("freshet_database_away", "Databases that do not answer.")
CLOCK_OFFSET_SECONDS = Gauge(
    "freshet_clock_offset_seconds",
    "How far this machine's clock is ahead of the broker's; NaN: not known.",
)
SHARDS_TO_SPLIT = Gauge(
    "freshet_shards_to_split", "Shards that a growth has still to split; 0: none is under way."
)
ASSIGNED_SHARDS = Gauge("freshet_assigned_shards", "Shards that this worker serves now.")
CONSUMER_LAG = Gauge(
    "freshet_consumer_lag_records", "Records not yet read, all partitions.", ["topic"]
)


def begin(topics: Iterable[str], *counters: Counter) -> None:
    """Let counters be there for topics, as 0, before they count.

    One that is born with its first value has not risen, for whoever watches how much it rises.
    """
    for topic in topics:
        for counter in counters:
            counter.labels(topic)
