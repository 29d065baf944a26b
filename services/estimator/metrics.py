"""Prometheus metrics of the estimator."""

from prometheus_client import Counter, Gauge, Histogram

EVENTS = Counter(
    "freshet_estimator_events_total",
    "Updates, signals and outcomes by what became of them: observed (a new crawl record), "
    "applied, not_counted (a signal about what a crawl saw already), stale (a duplicate, or "
    "older than what is known) or unknown_page.",
    ["kind", "verdict"],
)
PAGES = Gauge("freshet_estimator_pages", "Pages in memory, removed and gone ones too.")
READ = Counter(
    "freshet_estimator_pages_read_total",
    "Pages that were named and not in memory, and were read by their ids.",
)
EVICTED = Counter(
    "freshet_estimator_pages_evicted_total",
    "Pages that had to leave memory for others (FRESHET_ESTIMATOR_RESIDENT_PAGES).",
)
FITTED = Counter("freshet_estimator_fits_total", "Times that a page's parameters were learned.")
ANNOUNCED = Counter(
    "freshet_estimator_announcements_total", "Material changes of parameters that were published."
)
PASSED_ON = Counter(
    "freshet_estimator_passed_on_total",
    "Records of other shards' hosts that were passed on to them, while shards grow and after: "
    "producers may learn late of new partitions.",
)
PREDICTED_CHANGES = Counter(
    "freshet_estimator_predicted_changes_total",
    "Changes that crawls were expected to find, by what was known before each: the sum of their "
    "chances. By decile: 0 for chances below 0.1, up to 9.",
    ["decile"],
)
FOUND_CHANGES = Counter(
    "freshet_estimator_found_changes_total",
    "Changes that the same crawls found. By the decile of their chance.",
    ["decile"],
)
WORK_SECONDS = Histogram(
    "freshet_estimator_work_seconds",
    "Parts of a batch: read (wait for pages not in memory), apply (decode and apply), learn, "
    "refit (of hosts' priors), announce, store.",
    ["part"],
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)
RETRIES = Counter(
    "freshet_estimator_retries_total",
    "Times that a batch began again from the database's state: the database was away, or another "
    "estimator held the shard.",
)
SUPERSEDED = Counter(
    "freshet_estimator_superseded_total",
    "Shards that another estimator had taken over while this one believed to own them.",
)
STUCK = Gauge(
    "freshet_estimator_stuck_shards",
    "Shards that somebody holds locked in the database; the others go on.",
)
POISON = Counter(
    "freshet_estimator_poison_total",
    "Messages that could be read, but failed by themselves each time, and were set aside.",
)
DROPPED = Counter(
    "freshet_estimator_dropped_partitions_total",
    "Partitions of observations, four weeks each, that were dropped as too old.",
)
