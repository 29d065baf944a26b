"""What a verification is: how long, which faults, on which broker, and under what load."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

# fmt: off
Fault = Literal[
    "kill", "term", "pause", "rebalance", "broker", "postgres", "network",
    "duplicate", "reorder", "poison",
]
# fmt: on

FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)

PARTITIONS: Final = 8
SESSION_TIMEOUT_SECONDS: Final = 6.0
REQUEST_TIMEOUT_SECONDS: Final = 8.0

HIGHEST_RATE: Final = 180.0
LOWEST_RATE: Final = 100.0
"""The budget changes between these now and then, crawls per second."""

CRAWL_SECONDS: Final = 0.03
"""What a crawl takes."""

UNANSWERED_SHARE: Final = 0.002
"""Requests that the crawlers lose: they must be asked for again."""

BUSY_SHARE: Final = 0.002
"""Crawls that a host answers with 429 and Retry-After."""

FAILED_SHARE: Final = 0.003
"""Crawls that end with a server error."""

BUSY_SECONDS: Final = (4.0, 9.0)
"""What Retry-After asks for."""


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """A verification."""

    seconds: float
    """How long faults are injected; starting and draining come on top."""
    faults: tuple[Fault, ...] = FAULTS
    broker: Literal["local", "apache"] = "local"
    seed: int = 0
    pages: int = 3000
    max_age_seconds: float = 60.0
    """Every page is crawled at least so often."""
    keep: Path | None = None
    """Folder for logs and records; None: a temporary one, which is removed where all is well."""
