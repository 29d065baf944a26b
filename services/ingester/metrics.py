"""Prometheus metrics of the ingester."""

from prometheus_client import Counter, Gauge

SIGNALS = Counter(
    "freshet_ingester_signals_total",
    "Signals by what became of them: accepted, repeated, over_limit or refused.",
    ["result"],
)
SOURCES = Gauge("freshet_ingester_sources", "Sources whose rate is watched one by one now.")
SIGNALS_NOT_KEPT = Counter(
    "freshet_ingester_refused_not_kept_total",
    "Refused signals of a flood that were counted, but not copied to the dead letters.",
)
