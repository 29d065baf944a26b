"""Prometheus metrics of the frontier."""

from prometheus_client import Counter, Gauge, Histogram

CALLS = Counter(
    "freshet_frontier_calls_total",
    "Calls that have ended, by method and gRPC's status of the answer.",
    ["method", "status"],
)
REQUESTS = Counter(
    "freshet_frontier_requests_total",
    "Requests to crawl, by what became of them: given, given-again, answered, expired before they "
    "were given, unanswered after it, or bad.",
    ["result"],
)
WAITING = Gauge(
    "freshet_frontier_waiting_requests", "Requests to crawl that are read, and not handed out."
)
IN_FLIGHT = Gauge(
    "freshet_frontier_in_flight_requests", "Requests to crawl that are handed out, not answered."
)
ACTIVE = Gauge("freshet_frontier_active", "0: a client has set it inactive, nothing is handed out.")
OUTCOMES = Counter(
    "freshet_frontier_outcomes_total",
    "Outcomes that the broker has acknowledged, by result, or digest; and not-stored, which it has "
    "not.",
    ["result"],
)
UNCLEAR = Counter(
    "freshet_frontier_unclear_outcomes_total",
    "Known URLs that said nothing of their content: taken as changed.",
)
DISCOVERED = Counter(
    "freshet_frontier_discovered_total",
    "Discovered URLs, by what became of them: added, known, refused, off (not taken at all) or "
    "failed.",
    ["result"],
)
STORE_SECONDS = Histogram(
    "freshet_frontier_store_seconds",
    "Time from a message to its acknowledgement by the broker.",
    buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
)
