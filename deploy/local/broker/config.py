"""Topic settings: the ones that this broker obeys, under Kafka's names."""

from collections.abc import Mapping

import msgspec

from deploy.local.broker.protocol import ErrorCode, RequestError

DELETE, COMPACT = "delete", "compact"
UNLIMITED = -1

DEFAULTS = {
    "cleanup.policy": DELETE,
    "compression.type": "producer",
    "delete.retention.ms": str(60 * 60 * 1000),
    "max.compaction.lag.ms": str(2**63 - 1),
    "max.message.bytes": str(1024 * 1024 + 12),
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": str(512 * 1024 * 1024),
    "retention.ms": str(7 * 24 * 60 * 60 * 1000),
    "segment.bytes": str(64 * 1024 * 1024),
    "segment.ms": str(10 * 60 * 1000),
}
"""What holds for a topic that does not say otherwise: Kafka's values, but smaller, for one disk."""

_FIXED = ("compression.type", "min.insync.replicas")
_TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")
_MINIMA = {"segment.bytes": 1024, "segment.ms": 1, "max.message.bytes": 0}


class TopicConfig(msgspec.Struct, frozen=True):
    """Settings of one topic, parsed; sizes in bytes, times in milliseconds, -1 for no limit."""

    delete: bool
    compact: bool
    delete_retention_ms: int
    log_append_time: bool
    """Whether records carry the broker's time, whatever their producers say."""
    max_compaction_lag_ms: int
    min_compaction_lag_ms: int
    max_message_bytes: int
    min_cleanable_dirty_ratio: float
    retention_bytes: int
    retention_ms: int
    segment_bytes: int
    segment_ms: int


def parse_topic_config(overrides: Mapping[str, str]) -> TopicConfig:
    """Parse a topic's own settings over the defaults.

    Raises RequestError (INVALID_CONFIG) for a setting that is unknown, wrong, or cannot be obeyed.
    """
    for name, value in overrides.items():
        if name not in DEFAULTS:
            raise _invalid(f"unknown topic setting {name}; known: {', '.join(sorted(DEFAULTS))}")
        if name in _FIXED and value != DEFAULTS[name]:
            raise _invalid(f"{name}={value} is not supported here, only {DEFAULTS[name]}")
    merged = {**DEFAULTS, **overrides}
    policies = {part.strip() for part in merged["cleanup.policy"].split(",")}
    if not policies or not policies <= {DELETE, COMPACT}:
        raise _invalid(f"cleanup.policy={merged['cleanup.policy']}: use delete, compact or both")
    timestamp_type = merged["message.timestamp.type"]
    if timestamp_type not in _TIMESTAMP_TYPES:
        raise _invalid(
            f"message.timestamp.type={timestamp_type}: use {' or '.join(_TIMESTAMP_TYPES)}"
        )
    return TopicConfig(
        log_append_time=timestamp_type == "LogAppendTime",
        delete=DELETE in policies,
        compact=COMPACT in policies,
        delete_retention_ms=_integer(merged, "delete.retention.ms"),
        max_compaction_lag_ms=_integer(merged, "max.compaction.lag.ms"),
        min_compaction_lag_ms=_integer(merged, "min.compaction.lag.ms"),
        max_message_bytes=_integer(merged, "max.message.bytes"),
        min_cleanable_dirty_ratio=_ratio(merged, "min.cleanable.dirty.ratio"),
        retention_bytes=_integer(merged, "retention.bytes"),
        retention_ms=_integer(merged, "retention.ms"),
        segment_bytes=_integer(merged, "segment.bytes"),
        segment_ms=_integer(merged, "segment.ms"),
    )


def _integer(merged: Mapping[str, str], name: str) -> int:
    unlimited_allowed = name in ("retention.bytes", "retention.ms")
    minimum = UNLIMITED if unlimited_allowed else _MINIMA.get(name, 0)
    try:
        value = int(merged[name])
    except ValueError as error:
        raise _invalid(f"{name}={merged[name]!r} is not a whole number") from error
    if value < minimum:
        raise _invalid(f"{name}={value} must be at least {minimum}")
    return value


def _ratio(merged: Mapping[str, str], name: str) -> float:
    try:
        value = float(merged[name])
    except ValueError as error:
        raise _invalid(f"{name}={merged[name]!r} is not a number") from error
    if not 0 <= value <= 1:
        raise _invalid(f"{name}={value} must lie between 0 and 1")
    return value


def _invalid(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_CONFIG, message)
