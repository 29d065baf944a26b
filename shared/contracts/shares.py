"""The limit of every group that outcomes name and that has none of its own: how shards share it,
and what they say of such groups."""

from typing import Annotated

from msgspec import Meta, Struct

from shared.contracts.fields import Count, CrawlRate, NamedGroup, Shard, SlotNumber, UnixSeconds

MOST_DIVIDED = 500
"""Groups of which the default limit is not shared evenly: each is told to all schedulers."""

MOST_REPORTED = MOST_DIVIDED + 100
"""Groups that a shard tells of: those that are divided, and some that wait."""

_Share = Annotated[float, Meta(ge=0, le=1)]


class NamedPages(Struct, frozen=True, gc=False):
    """What a shard has of a group that goes by the default limit."""

    group: NamedGroup
    pages: Count
    waits: bool = False
    """Whether hosts of it wait for its limit."""


class DividedGroup(Struct, frozen=True, gc=False):
    """A group that goes by the default limit, and which shards have how much of it."""

    group: NamedGroup
    shards: list[Shard]
    """Others crawl no host of it. None: all shards have equal parts still, and say how many pages
    of it they have."""
    shares: list[_Share]
    """Of `shards`, in their order."""


class DefaultShares(Struct, frozen=True, gc=False):
    """The limit of each group that outcomes name and that operators do not limit.

    As that of one group (`GroupShares`), but each has a sequence of slots, of which all have the
    same times. Shard k of n has those whose points lie in [k/n, (k+1)/n), but of divided groups.
    """

    crawls_per_second: CrawlRate
    since: UnixSeconds
    """From then on these shares hold."""
    first_slot: SlotNumber
    """How many slots of each group have passed then; the one that had begun is nobody's."""
    shards: Annotated[int, Meta(ge=1, le=32768)]
    """n: how many there are."""
    divided: Annotated[list[DividedGroup], Meta(max_length=MOST_DIVIDED)] = []


Named = Annotated[list[NamedPages], Meta(max_length=MOST_REPORTED)]
