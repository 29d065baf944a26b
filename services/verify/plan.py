"""What a verification is: how long, which faults, on which broker, and under what load."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

# fmt: off
Fault = Literal[
    "kill", "term", "pause", "rebalance", "broker", "postgres", "network", "clock",
    "duplicate", "reorder", "poison",
    # Where there are several servers:
    "node-kill", "node-stop", "node-pause", "node-cut",
    "standby", "failover", "forget", "disk", "node-disk",
    # Where the workers are at first those of another version:
    "upgrade",
    # The number of shards, to four times as many, and then twice as many; where it is asked for:
    "grow",
]
# fmt: on

Topology = Literal["one", "cluster"]
"""One broker and one PostgreSQL; or three nodes of Apache Kafka, PostgreSQL with a standby, and two
of every worker."""

FAULTS: Final[Mapping[Topology, tuple[Fault, ...]]] = {
    "one": get_args(Fault)[:11],
    "cluster": tuple(f for f in get_args(Fault) if f not in ("broker", "upgrade", "grow")),
}
"""The faults of each topology. A cluster's brokers have faults of their own."""

PARTITIONS: Final = 8
SESSION_TIMEOUT_SECONDS: Final = 6.0
REQUEST_TIMEOUT_SECONDS: Final = 8.0

RATES: Final[Mapping[Topology, tuple[float, float]]] = {
    "one": (100.0, 180.0),
    "cluster": (60.0, 120.0),
}
"""The budget changes between these now and then, crawls per second. A cluster does more for each of
them, and the machine is the same."""

DISKS: Final[frozenset[Fault]] = frozenset({"disk", "node-disk"})
"""Faults for which each server has a disk of its own."""

CLASSES: Final[Mapping[str, Mapping[str, float]]] = {
    "news": {"weight": 2.0},
    "partner": {"share": 0.2},
    "plain": {},
}
"""What classes of pages mean (`FRESHET_CLASSES`)."""

CRAWL_SECONDS: Final = 0.03
"""What a crawl takes."""

UNANSWERED_SHARE: Final = 0.002
"""Requests that the crawlers lose: they must be asked for again."""

BUSY_SHARE: Final = 0.002
"""Crawls that a host answers with 429 and Retry-After."""

FAILED_SHARE: Final = 0.003
"""Crawls that end with a server error."""

GONE_SHARE: Final = 0.001
"""Crawls of pages that were there from the beginning that find them gone."""

AWAY_SHARE: Final = 0.001
"""Crawls of such pages that find that they lead elsewhere, or that robots.txt forbids them."""

DIGEST_EVERY: Final = 3
"""Of one page in so many the crawlers give a digest, and do not say whether it changed."""

BUSY_SECONDS: Final = (4.0, 9.0)
"""What Retry-After asks for."""


class PlanRefused(ValueError):
    """A plan could show nothing; the text says what to ask for instead."""


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """A verification.

    Raises:
        PlanRefused: its budget cannot keep its pages within their bound, so nobody could say which
            of them were crawled too late.
    """

    seconds: float
    """How long faults are injected; starting and draining come on top."""
    faults: tuple[Fault, ...] = FAULTS["one"]
    topology: Topology = "one"
    broker: Literal["local", "apache"] = "local"
    """A cluster is always Apache Kafka's."""
    in_transactions: bool = False
    """The outcomes of half of the shards are published in transactions; not on the local broker."""
    seed: int = 0
    pages: int = 3000
    rate: float | None = None
    """The highest budget, crawls per second; None: the topology's."""
    max_age_seconds: float = 60.0
    """Every page is crawled at least so often."""
    away_seconds: tuple[float, float] | None = None
    """How long the faults `broker` and `postgres` take a server away; None: for some seconds."""
    before: Path | None = None
    """Folder of another version, whose workers run at first, and are replaced one by one; None:
    all are of this version from the beginning."""
    keep: Path | None = None
    """Folder for logs and records; None: a temporary one, which is removed where all is well."""

    def __post_init__(self) -> None:
        part = self.part_for_all * sum(self.rates) / (2.0 * self.highest_rate)
        crawls = self.highest_rate * part * self.max_age_seconds
        if crawls >= self.pages:
            return
        rate = math.ceil(self.pages / (part * self.max_age_seconds))
        raise PlanRefused(
            f"{self.pages} pages are to be crawled every {self.max_age_seconds:g} s, and a budget "
            f"of {self.highest_rate:g} crawls per second at most, which changes, does not last for "
            f"them: give --rate {rate} or --pages {math.floor(crawls)}"
        )

    @property
    def classes(self) -> Mapping[str, Mapping[str, float]]:
        """Of pages, by name, and what they mean. Workers of another version may know of none."""
        return CLASSES if self.before is None else {}

    @property
    def part_for_all(self) -> float:
        """Of the budget, what is kept for no class: pages that are due can count on no more."""
        return 1.0 - sum(of.get("share", 0.0) for of in self.classes.values())

    @property
    def rates(self) -> tuple[float, float]:
        """The budget changes between these, crawls per second."""
        lowest, highest = RATES[self.topology]
        return (lowest, highest) if self.rate is None else (self.rate * lowest / highest, self.rate)

    @property
    def highest_rate(self) -> float:
        """Of the budget, crawls per second; at the start as well."""
        return self.rates[1]
