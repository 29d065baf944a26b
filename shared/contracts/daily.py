"""The budget by the time of the day (`messages.Bandwidth`)."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from shared.contracts.fields import CrawlRate


class ScheduledRate(Struct, frozen=True, gc=False):
    """The budget from a time of the day on, every day."""

    second: Annotated[int, Meta(ge=0, lt=86_400)]
    """Of the local day: 6:30 is 23,400."""
    crawls_per_second: CrawlRate


def require_rising(schedule: Sequence[ScheduledRate]) -> None:
    """Refuse a schedule that is out of order.

    Raises:
        ValueError: it is.
    """
    seconds = [step.second for step in schedule]
    if sorted(set(seconds)) != seconds:
        raise ValueError("the times of the schedule must rise, and each be there once")
