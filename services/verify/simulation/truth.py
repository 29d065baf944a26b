"""What an operator, a crawler or a pinger would swear to: what the checks go by."""

import math
from dataclasses import dataclass, field

from services.verify.simulation.sharing import ADDRESS, AT_ADDRESS, AT_EACH, EACH, LIMITS
from shared.contracts.messages import PageUpdate


@dataclass(slots=True)
class Page:
    """A page as it is in truth."""

    url: str
    host: str
    partition: int
    page_id: int
    added_at: float
    """Virtual seconds, as are all times here."""
    removed_at: float = math.inf
    changed_at: float = -math.inf
    crawled_at: float = -math.inf


@dataclass(slots=True)
class Break:
    """A topic that does not continue what was read of it."""

    topic: str
    at: float
    noticed_by: set[str] = field(default_factory=set)
    """Workers that have stopped for it, and say so."""
    looks: int = 0
    """How often people have looked while nothing was down."""


@dataclass(slots=True)
class Truth:
    """What an operator, a crawler or a pinger would swear to."""

    pages: list[Page] = field(default_factory=list)
    host_limits: dict[str, float] = field(default_factory=dict)
    open_bounds: dict[str, int] = field(default_factory=dict)
    """Host → how many requests of it may be on their way at once, of those that have a bound."""
    group_limits: dict[str, float] = field(default_factory=dict)
    """Domain or address → crawls per second of all its hosts together, all the time."""
    at_address: dict[str, str] = field(default_factory=dict)
    """Host → where crawlers find it, of those whose address has a limit."""
    budgets: list[tuple[float, float]] = field(default_factory=list)
    """When the budget was set, and to how many crawls a second."""
    bad: set[tuple[str, int, int]] = field(default_factory=set)
    """Topic, partition and offset of messages that nobody can take."""
    once_bad: set[tuple[str, int, int]] = field(default_factory=set)
    """The same of messages that are not there any more: they may have come to somebody, or not."""
    imported: list[PageUpdate] = field(default_factory=list)
    """What operators imported, as the updates that it amounts to."""
    unsure: set[str] = field(default_factory=set)
    """URLs of which something was lost that may have been applied before, or not."""
    breaks: list[Break] = field(default_factory=list)
    grown_to: int = 0
    """How many shards operators have asked for; 0: they never have."""

    def limit_groups(self, each: float | None) -> None:
        """Groups have their limits, and every other address this one; None: it has none."""
        self.group_limits |= LIMITS
        self.at_address |= dict.fromkeys(AT_ADDRESS, ADDRESS)
        if each is not None:
            self.group_limits[EACH] = each
            self.at_address |= dict.fromkeys(AT_EACH, EACH)
