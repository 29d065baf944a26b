"""What a shard goes by: settings, in clock seconds unless said otherwise."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PickingRules:
    """How pages are picked."""

    request_timeout: float
    speed: float
    """Clock seconds in a wall second."""
    uniform: bool = False
    """By age instead of crawl value."""


@dataclass(frozen=True, slots=True)
class ShardRules:
    """What events do."""

    picking: PickingRules
    signal_delay: float
    failed_retry: float
    default_max_age_days: float
    """Infinite: no bound."""
    default_host_rate: float
    """Crawls per second."""
