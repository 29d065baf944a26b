"""Pages that were found, as `page-updates`."""

from collections.abc import Callable, Iterable
from typing import Final

from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, shard_of
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.publisher import ByPlace

BEHIND_SECONDS: Final = 600.0
"""Whoever finds a page knows what estimators have applied: they may be behind by so much."""

ImportanceOf = Callable[[PageIdentity], float | None]
"""Of a page that is added; None: the usual one."""


def usual_importance(_page: PageIdentity) -> None:
    """That of a page of which nobody says one."""


def found_page(page: PageIdentity, found_at: float, importance: float | None = None) -> PageUpdate:
    """The update that adds a page.

    It is of a time before the page was found: what an operator has said of it, and estimators have
    not applied yet, counts, and so does all that he says later, though this comes after it. Without
    bounds, and without importance if none is given: those of a page that is known meanwhile stay.

    Args:
        page: that was found.
        found_at: Unix seconds.
        importance: of the page; None: the usual one.
    """
    updated_at = max(found_at - BEHIND_SECONDS, 0.0)
    return PageUpdate("upsert", page.url, importance, updated_at=updated_at)


def updates_by_place(
    found: Iterable[tuple[PageIdentity, float]],
    shards: int,
    importance_of: ImportanceOf = usual_importance,
) -> ByPlace:
    """Updates that add pages, each on the partition of its host's shard.

    Args:
        found: pages, and when each was found, Unix seconds.
        shards: partitions of the topic.
        importance_of: a page that is added.
    """
    made: ByPlace = {}
    for page, found_at in found:
        place = (PAGE_UPDATES.name, shard_of(page.host, shards))
        value = encode(found_page(page, found_at, importance_of(page)))
        made.setdefault(place, []).append((page.host.encode(), value))
    return made
