"""Prometheus metrics of the poller."""

from prometheus_client import Counter, Gauge

EVENTS = Counter(
    "freshet_poller_events_total",
    "Events of streams, by what became of them: signal, ignored or bad.",
    ["stream", "result"],
)
SIGNALS = Counter(
    "freshet_poller_signals_total",
    "Signals that the broker has acknowledged, by source.",
    ["source"],
)
CONNECTIONS = Counter(
    "freshet_poller_connections_total",
    "Connections to streams that were asked for: they are what a stream costs.",
    ["stream"],
)
FAILURES = Counter(
    "freshet_poller_stream_failures_total",
    "Connections to streams that brought no event.",
    ["stream"],
)
BYTES = Counter(
    "freshet_poller_stream_bytes_total",
    "What came over streams, unpacked.",
    ["stream"],
)
CONNECTED = Gauge("freshet_poller_connected", "1: the stream is being read.", ["stream"])
DELAY_SECONDS = Gauge(
    "freshet_poller_delay_seconds",
    "How old the newest event of a stream was when it came.",
    ["stream"],
)
GAPS = Counter(
    "freshet_poller_gaps_total",
    "Times that a stream's server no longer had what came after the last event that was read.",
    ["stream"],
)
POLLS = Counter(
    "freshet_poller_polls_total",
    "Readings of sitemaps and feeds, by what came of them: changed, unchanged or failed.",
    ["result"],
)
POLLS_BY_REASON = Counter(
    "freshet_poller_polls_by_reason_total",
    "Readings of sitemaps and feeds, by why they came then: value, rhythm, first or retry.",
    ["reason"],
)
PAGES = Counter(
    "freshet_poller_pages_total",
    "New pages of sitemaps and feeds that the broker has acknowledged.",
)
BAD_ENTRIES = Counter(
    "freshet_poller_bad_entries_total",
    "New entries of sitemaps and feeds that are no URLs, and such lines of sitemaps in plain text.",
)
SOURCES = Gauge(
    "freshet_poller_sources",
    "Sitemaps and feeds that are watched: well, or failing since their last reading.",
    ["state"],
)
