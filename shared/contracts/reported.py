"""What a shard says of a part of what it has, in its report (`messages.DemandCurve`)."""

from typing import Annotated

from msgspec import Meta, Struct, field

from shared.contracts.fields import MAX_CLASS_LENGTH, Count, Group, NonNegative, Reason


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


class ClassCrawls(Struct, frozen=True, gc=False):
    """What a shard has of a class of pages, and asks crawlers for."""

    page_class: Annotated[str, Meta(max_length=MAX_CLASS_LENGTH)] = field(name="class")
    """Empty: all pages of which operators say nothing."""
    pages: Count
    crawls_per_second: NonNegative
    share: Annotated[float, Meta(ge=0, le=1)] = 0.0
    """Part of the slots that is kept for it; 0: none is."""
    weight: NonNegative = 1.0
    """By what the importance of its pages is multiplied."""
