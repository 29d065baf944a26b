"""The topics: who writes, who reads, how they are keyed, kept and partitioned."""

from dataclasses import dataclass, field
from typing import Literal

from msgspec import Struct

from shared.contracts import messages

Partitioning = Literal["shards", "single", "any"]

_HOUR_MS = 3_600_000
_DAY_MS = 24 * _HOUR_MS
_TEN_MINUTES_MS = 600_000


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of the contract."""

    name: str
    message: type[Struct] | None
    """None: raw bytes."""
    key: str
    partitioning: Partitioning
    """`shards`: one partition a shard, keyed by host; `single`: one; `any`: as configured."""
    written_by: str
    read_by: str
    config: dict[str, str] = field(default_factory=dict)

    @property
    def compacted(self) -> bool:
        """Whether the last message of a key stands for ever."""
        return "compact" in self.config.get("cleanup.policy", "delete")


def _kept(milliseconds: int) -> dict[str, str]:
    return {"cleanup.policy": "delete", "retention.ms": str(milliseconds)}


_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.1",
    "segment.ms": str(_HOUR_MS),
}

_STAMPED = {"message.timestamp.type": "LogAppendTime"}
"""Records carry the broker's time, whatever their producers say."""

SIGNALS = Topic(
    "signals",
    messages.Signal,
    "any",
    "any",
    "web-ping producers, receiver, poller",
    "ingester",
    # Limits and repetitions go by the arrival, which no producer may make up.
    _kept(_DAY_MS) | _STAMPED,
)
PAGE_SIGNALS = Topic(
    "page-signals",
    messages.PageSignal,
    "host",
    "shards",
    "ingester",
    "scheduler, estimator",
    _kept(7 * _DAY_MS),
)
CRAWL_REQUESTS = Topic(
    "crawl-requests",
    messages.CrawlRequest,
    "host",
    "shards",
    "scheduler",
    "crawler fleet, frontier (and scheduler, on recovery)",
    # A scheduler that starts looks for those of late, whatever the clock of the one before it said.
    _kept(_DAY_MS) | _STAMPED,
)
CRAWL_OUTCOMES = Topic(
    "crawl-outcomes",
    messages.CrawlOutcome,
    "host",
    "shards",
    "crawler fleet, frontier",
    "scheduler, estimator, discoverer",
    _kept(7 * _DAY_MS),
)
DISCOVERIES = Topic(
    "discoveries",
    messages.Discovery,
    "host of the page that links",
    "any",
    "crawler fleet",
    "discoverer",
    # A page that a link makes is of the link's arrival, which no producer may make up.
    _kept(_DAY_MS) | _STAMPED,
)
PAGE_UPDATES = Topic(
    "page-updates",
    messages.PageUpdate,
    "host",
    "shards",
    "operators, poller, discoverer, frontier",
    "estimator, scheduler",
    _kept(7 * _DAY_MS),
)
PAGE_PARAMETERS = Topic(
    "page-parameters",
    messages.PageParameters,
    "host",
    "shards",
    "estimator",
    "scheduler",
    _kept(_DAY_MS),
)
HOST_PARAMETERS = Topic(
    "host-parameters",
    messages.HostParameters,
    "host",
    "shards",
    "estimator",
    "scheduler",
    _kept(_DAY_MS),
)
HOST_LIMITS = Topic(
    "host-limits",
    messages.HostLimit,
    "host",
    "shards",
    "crawler fleet, frontier, operators",
    "scheduler",
    # A message may be about one rule of its host alone, and compaction drops those about others.
    _COMPACTED | {"min.compaction.lag.ms": str(7 * _DAY_MS)},
)
BANDWIDTH = Topic(
    "bandwidth", messages.Bandwidth, "-", "single", "operators", "coordinator", _COMPACTED
)
GROUP_LIMITS = Topic(
    "group-limits", messages.GroupLimit, "group", "single", "operators", "coordinator", _COMPACTED
)
DEMAND_CURVES = Topic(
    "demand-curves",
    messages.DemandCurve,
    "shard",
    "single",
    "scheduler",
    "coordinator",
    # A coordinator that starts goes by when they came, not by the clocks of those who report.
    _kept(_TEN_MINUTES_MS) | {"segment.ms": str(_TEN_MINUTES_MS)} | _STAMPED,
)
CLOCK = Topic(
    "clock",
    None,
    "-",
    "single",
    "ingester, scheduler, estimator, coordinator, receiver, poller, frontier, discoverer, "
    "operators",
    "nobody: the broker's answer tells its time",
    _kept(_TEN_MINUTES_MS) | {"segment.ms": str(_TEN_MINUTES_MS)} | _STAMPED,
)
MULTIPLIERS = Topic(
    "multipliers",
    messages.Multipliers,
    "-",
    "single",
    "coordinator",
    "every scheduler",
    # One that comes too late counts for nobody: all must see the same time.
    _COMPACTED | _STAMPED,
)
DEAD_LETTERS = Topic(
    "dead-letters", None, "as received", "single", "all", "operators", _kept(14 * _DAY_MS)
)

TOPICS: tuple[Topic, ...] = (
    SIGNALS,
    PAGE_SIGNALS,
    CRAWL_REQUESTS,
    CRAWL_OUTCOMES,
    DISCOVERIES,
    PAGE_UPDATES,
    PAGE_PARAMETERS,
    HOST_PARAMETERS,
    HOST_LIMITS,
    BANDWIDTH,
    GROUP_LIMITS,
    DEMAND_CURVES,
    MULTIPLIERS,
    DEAD_LETTERS,
    CLOCK,
)

GLOBAL_KEY = b"global"

CLAIM_KEY = b"claim"
"""Of the `multipliers` with which a leader begins: they do not replace those that stand."""
"""The key of messages that are about everything: bandwidth and multipliers."""
