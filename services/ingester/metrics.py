"""Prometheus metrics of the ingester."""

from prometheus_client import Counter, Gauge

SIGNALS = Counter(
    "freshet_ingester_signals_total",
    "Signals by what became of them: accepted, repeated, over_limit or refused.",
    ["result"],
)
SOURCES = Gauge("freshet_ingester_sources", "Sources whose rate is watched one by one now.")
TIMED_SIGNALS = Counter(
    "freshet_ingester_timed_signals_total",
    "Signals that say when their page changed, by source; unnamed: nobody has named it.",
    ["source"],
)
DELAY_SECONDS = Counter(
    "freshet_ingester_signal_delay_seconds_total",
    "Of them all, from the time that they say to their arrival.",
    ["source"],
)
SIGNALS_NOT_KEPT = Counter(
    "freshet_ingester_refused_not_kept_total",
    "Refused signals of a flood that were counted, but not copied to the dead letters.",
)
