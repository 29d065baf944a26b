"""The budget by the time of the day (`messages.Bandwidth`)."""

from typing import Annotated

from msgspec import Meta, Struct

from shared.contracts.fields import CrawlRate


class ScheduledRate(Struct, frozen=True, gc=False):
    """The budget from a time of the day on, every day."""

    second: Annotated[int, Meta(ge=0, lt=86_400)]
    """Of the local day: 6:30 is 23,400."""
    crawls_per_second: CrawlRate
