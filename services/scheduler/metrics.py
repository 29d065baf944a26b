"""Prometheus metrics of the scheduler."""

from prometheus_client import Counter, Gauge, Histogram

EVENTS = Counter("freshet_scheduler_events_total", "Messages that were taken.", ["topic"])
UNKNOWN_PAGES = Counter(
    "freshet_scheduler_unknown_pages_total", "Messages about pages that are not there.", ["topic"]
)
UNREADABLE = Counter(
    "freshet_scheduler_unreadable_total", "Messages that could not be read.", ["topic"]
)
SUPERSEDED = Counter(
    "freshet_scheduler_superseded_total",
    "Parameters that were left out, as another estimator had replaced the one that sent them.",
    ["topic"],
)
IMPORTED = Counter(
    "freshet_scheduler_imported_pages_total", "Pages of imports that came while this runs."
)
REQUESTS = Counter("freshet_scheduler_requests_total", "Crawl requests by reason.", ["reason"])
REASON_SHARES = Gauge(
    "freshet_scheduler_reason_share_ratio",
    "Part of the slots that is kept for a reason.",
    ["reason"],
)
CLASS_REQUESTS = Counter(
    "freshet_scheduler_class_requests_total",
    "Crawl requests by class of pages: those that operators name, and all others.",
    ["page_class"],
)
CLASS_SHARES = Gauge(
    "freshet_scheduler_class_share_ratio",
    "Part of the slots that is kept for a class of pages.",
    ["page_class"],
)
CLASS_WEIGHTS = Gauge(
    "freshet_scheduler_class_weight_ratio",
    "By what the importance of a class's pages is multiplied.",
    ["page_class"],
)
CLASS_PAGES = Gauge(
    "freshet_scheduler_class_pages", "Pages in memory by class of pages.", ["page_class"]
)
EMPTY_SLOTS = Counter(
    "freshet_scheduler_empty_slots_total", "Slots left empty as no page was to be crawled."
)
HELD_SLOTS = Counter(
    "freshet_scheduler_held_slots_total",
    "Slots left empty because the crawlers have not answered what they were asked before.",
)
FORFEITED_SLOTS = Counter(
    "freshet_scheduler_forfeited_slots_total", "Slots that had passed before they could be filled."
)
SCANS = Counter("freshet_scheduler_scans_total", "Looks at all pages of a shard.")
UNCERTAIN_PICKS = Counter(
    "freshet_scheduler_uncertain_picks_total",
    "Picks that a look at all pages might not have made, while the guard was being lowered.",
)
TICK_SECONDS = Histogram(
    "freshet_scheduler_tick_seconds",
    "Time to fill the slots of a tick and write their requests.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3),
)
EMISSION_SECONDS = Histogram(
    "freshet_scheduler_emission_seconds",
    "From a slot to the hand-over of its request to Kafka, wall seconds.",
    buckets=(0.01, 0.03, 0.05, 0.1, 0.2, 0.5, 1, 3),
)
PAGES = Gauge("freshet_scheduler_pages", "Pages in memory.")
MULTIPLIER = Gauge("freshet_scheduler_multiplier", "The global multiplier in force.")
LIMITED_HOSTS = Gauge(
    "freshet_scheduler_limited_hosts", "Hosts that hold pages above the threshold back."
)
