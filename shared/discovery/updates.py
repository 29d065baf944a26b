"""Pages that were found, as `page-updates`."""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from msgspec import UNSET

from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, shard_of
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.publisher import ByPlace

BEHIND_SECONDS: Final = 600.0
"""Whoever finds a page knows what estimators have applied: they may be behind by so much."""


class Said(NamedTuple):
    """What is said of a page that is added."""

    importance: float | None = None
    """None: the usual one."""
    page_class: str | None = None
    """None: none."""


SaidOf = Callable[[PageIdentity], Said]


def nothing_said(_page: PageIdentity) -> Said:
    """Of a page of which nobody says anything."""
    return Said()


def found_page(page: PageIdentity, found_at: float, said: Said = Said()) -> PageUpdate:  # noqa: B008
    """The update that adds a page.

    It is of a time before the page was found: what an operator has said of it, and estimators have
    not applied yet, counts, and so does all that he says later, though this comes after it. Without
    bounds, and without importance and class if none is given: those of a page that is known
    meanwhile stay.

    Args:
        page: that was found.
        found_at: Unix seconds.
        said: of the page.
    """
    updated_at = max(found_at - BEHIND_SECONDS, 0.0)
    return PageUpdate(
        "upsert",
        page.url,
        said.importance,
        updated_at=updated_at,
        page_class=UNSET if said.page_class is None else said.page_class,
    )


def updates_by_place(
    found: Iterable[tuple[PageIdentity, float]],
    shards: int,
    said_of: SaidOf = nothing_said,
) -> ByPlace:
    """Updates that add pages, each on the partition of its host's shard.

    Args:
        found: pages, and when each was found, Unix seconds.
        shards: partitions of the topic.
        said_of: what is said of a page that is added.
    """
    made: ByPlace = {}
    for page, found_at in found:
        place = (PAGE_UPDATES.name, shard_of(page.host, shards))
        value = encode(found_page(page, found_at, said_of(page)))
        made.setdefault(place, []).append((page.host.encode(), value))
    return made
