"""What a shard goes by: settings, in clock seconds unless said otherwise."""

from dataclasses import dataclass

from shared.contracts.messages import PageUpdate
from shared.rules.host_objectives import FRESHNESS_ALONE, HostObjectives


@dataclass(frozen=True, slots=True)
class PickingRules:
    """How pages are picked."""

    request_timeout: float
    speed: float
    """Clock seconds in a wall second."""
    uniform: bool = False
    """By age instead of crawl value."""
    least_interval: float = 0.0
    """From a page's last crawl to the next at least."""
    least_value: float = 0.0
    """Crawl value below which no slot is spent on a page that was crawled before; 0: none."""
    shares: tuple[float, ...] = ()
    """Parts of the slots, by value and of each upper tier (`shared.runtime.reason_shares`); none:
    upper tiers go first."""
    objectives: HostObjectives = FRESHNESS_ALONE
    """What the pages of each host are crawled for."""


@dataclass(frozen=True, slots=True)
class ClassRules:
    """What operators say of a class of pages."""

    name: str
    weight: float
    """By what the importance of its pages is multiplied."""
    share: float
    """Part of the slots that is kept for it; 0: none."""
    lane: int
    """Among the classes with shares, from 1 on; 0: it has none."""


@dataclass(frozen=True, slots=True)
class ShardRules:
    """What events do."""

    picking: PickingRules
    signal_delay: float
    failed_retry: float
    """After a first failure; no less than `PickingRules.least_interval`."""
    default_max_age_days: float
    """Infinite: no bound."""
    default_host_rate: float
    """Crawls per second."""
    classes: tuple[ClassRules, ...] = ()
    """Those of which operators say something."""

    def max_age_days_of(self, update: PageUpdate) -> float | None:
        """The bound that an update gives a page; None: it says nothing of that."""
        return self.default_max_age_days if update.no_max_age else update.max_age_days
