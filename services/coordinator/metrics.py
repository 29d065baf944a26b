"""Prometheus metrics of the coordinator. Rates are in crawls per second of the clock."""

from prometheus_client import Counter, Gauge

BANDWIDTH = Gauge("freshet_bandwidth_crawls_per_second", "The budget; 0 also when none is set.")
ACHIEVED = Gauge(
    "freshet_achieved_crawls_per_second", "What the shards say that they sent, together."
)
ACHIEVED_RATIO = Gauge(
    "freshet_achieved_ratio", "Crawls that the shards sent of late, to the slots of the budget."
)
LEADING = Gauge("freshet_coordinator_leading", "1: this coordinator decides; 0: another does.")
EPOCH = Gauge("freshet_coordinator_epoch_number", "Of the newest leadership that is known.")
LIMITED_SHARDS = Gauge(
    "freshet_short_shards", "Shards that have shown that they cannot use more than a certain rate."
)
MULTIPLIER = Gauge("freshet_multiplier_value", "λ₀, the global threshold of the crawl value.")
VERSION = Gauge("freshet_multipliers_version_number", "Of the newest `multipliers`, of any leader.")
LIVE_SHARDS = Gauge("freshet_live_shards", "Shards that report.")
SILENT_SHARDS = Gauge(
    "freshet_silent_shards", "Shards that there are, and that have not reported for too long."
)
HOST_LIMITED = Gauge(
    "freshet_host_limited_ratio", "Share of the demand at λ₀ that host limits hold back."
)
UNUSED = Gauge(
    "freshet_unused_crawls_per_second",
    "What is left of the budget, as no page is to be crawled: least interval, floor, host limits.",
)
FLEET_HELD = Gauge(
    "freshet_fleet_held_ratio",
    "Part of the slots that wait because the crawlers are behind with what they were asked.",
)
FLEET_ANSWERS = Gauge(
    "freshet_fleet_answers_per_second",
    "Requests that the crawlers answer; while they are behind, that is all that they can.",
)
DECISIONS = Counter("freshet_multipliers_published_total", "Messages sent, by cause.", ["cause"])
LATE = Counter(
    "freshet_late_multipliers_total",
    "Messages that the broker took too late to count: a slow broker, or clocks that differ.",
)
HISTORY_LOST = Counter(
    "freshet_multiplier_history_lost_total",
    "Decisions that could not be recorded in the database in time.",
)
