"""Prometheus metrics of the receiver."""

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "freshet_receiver_requests_total",
    "Requests, by what was asked for and the status of the answer.",
    ["page", "status"],
)
SIGNALS = Counter(
    "freshet_receiver_signals_total",
    "Signals that the broker has acknowledged, by source.",
    ["source"],
)
ANSWER_SECONDS = Histogram(
    "freshet_receiver_answer_seconds",
    "Time from a request's head to its answer.",
    buckets=(0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30),
)
WAITING = Gauge(
    "freshet_receiver_waiting_signals", "Signals that the broker has not acknowledged yet."
)
CONNECTIONS = Gauge("freshet_receiver_connections", "Open connections.")
CONNECTIONS_REFUSED = Counter(
    "freshet_receiver_connections_refused_total", "Connections that were one too many."
)
KEY_CHECKS = Counter(
    "freshet_receiver_key_checks_total",
    "Fetches of IndexNow key files, by result: valid, invalid or unreachable.",
    ["result"],
)
SUBSCRIPTIONS = Gauge(
    "freshet_receiver_subscriptions", "WebSub subscriptions, by state.", ["state"]
)
CONTENT_IGNORED = Counter(
    "freshet_receiver_content_ignored_total",
    "Content from hubs that was not signed with the subscription's secret.",
)
