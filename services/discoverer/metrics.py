"""Prometheus metrics of the discoverer."""

from prometheus_client import Counter

LINKS = Counter(
    "freshet_discoverer_links_total",
    "Links by what became of them: new, known, repeated within a batch; or why not: no-url, "
    "private, host, pattern, trap, depth or quota.",
    ["result"],
)
TAKEN = Counter(
    "freshet_discoverer_taken_links_total",
    "Links that were read, by topic; those of crawl-outcomes are redirects and canonical URLs.",
    ["topic"],
)
