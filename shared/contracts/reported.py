"""What a shard says of a part of what it has, in its report (`messages.DemandCurve`)."""

from typing import Annotated

from msgspec import Meta, Struct

from shared.contracts.fields import Count, Group, NonNegative, Reason


class GroupPages(Struct, frozen=True, gc=False):
    """What a shard has of a group with a limit."""

    group: Group
    pages: Count


class ReasonCrawls(Struct, frozen=True, gc=False):
    """What a shard asks crawlers for, for one reason."""

    reason: Reason
    crawls_per_second: NonNegative
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Part of the slots that is kept for it; 0: none is."""
