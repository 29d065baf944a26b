"""Pages that were found, as `page-updates`."""

from collections.abc import Iterable

from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, shard_of
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.publisher import ByPlace


def found_page(page: PageIdentity, found_at: float) -> PageUpdate:
    """The update that adds a page.

    Without importance and bounds: those of a page that is known meanwhile stay. And of the time at
    which the page was found: what an operator says of it later counts, though this comes after it.

    Args:
        page: that was found.
        found_at: Unix seconds.
    """
    return PageUpdate("upsert", page.url, updated_at=found_at)


def updates_by_place(found: Iterable[tuple[PageIdentity, float]], shards: int) -> ByPlace:
    """Updates that add pages, each on the partition of its host's shard.

    Args:
        found: pages, and when each was found, Unix seconds.
        shards: partitions of the topic.
    """
    made: ByPlace = {}
    for page, found_at in found:
        place = (PAGE_UPDATES.name, shard_of(page.host, shards))
        value = encode(found_page(page, found_at))
        made.setdefault(place, []).append((page.host.encode(), value))
    return made
