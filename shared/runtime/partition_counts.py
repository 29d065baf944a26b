"""Whether topics have the partitions that a process expects, also while an installation grows."""

from collections.abc import Mapping
from typing import NamedTuple

import structlog

log = structlog.get_logger(__name__)

_SIZES_OF_A_GROWTH = 2
"""Topics that have got their new partitions, and those that have not yet."""


class TopicMismatch(Exception):
    """A topic on the broker is not as configured; the text says which and what to do."""


class Growth(NamedTuple):
    """What the numbers of partitions say of an installation."""

    shards: int
    """How many there are, or will be when the growth is over."""
    is_over: bool
    """Whether all topics have so many partitions; true also of one that never grew."""


def growth_of(found: Mapping[str, int], wanted: int) -> Growth:
    """Whether the topics of the shards can be used. Pure.

    A process that knows no database goes by a setting that may be older than a growth: more
    partitions are right if there are a whole multiple of them. A worker that knows the database's
    number may start when the database is prepared for a growth and the topics are not.

    Args:
        found: topic on the broker → partitions that it has.
        wanted: how many the settings say.

    Raises:
        TopicMismatch: a growth does not explain the numbers.
    """
    sizes = set(found.values())
    if sizes <= {wanted}:
        return Growth(wanted, is_over=True)
    least, most = min(sizes), max(sizes)
    is_grown = least > 0 and least % wanted == 0
    # Topics of one partition are those that a broker makes by itself for whoever names them.
    is_behind = least > 1 and not any(wanted % size for size in sizes)
    if len(sizes) > _SIZES_OF_A_GROWTH or not (is_grown or is_behind) or most % least:
        name = next(name for name, count in found.items() if count != wanted)
        raise mismatch(name, found[name], wanted)
    return Growth(max(most, wanted), is_over=is_grown and least == most)


def check_shards(found: Mapping[str, int], wanted: int) -> int:
    """Look whether the topics of the shards can be used, and say so if they are of a growth.

    Args:
        found: topic on the broker → partitions that it has.
        wanted: how many the settings say.

    Returns:
        how many partitions a topic of the shards gets that is made now.

    Raises:
        TopicMismatch: a growth does not explain the numbers.
    """
    growth = growth_of(found, wanted)
    if not growth.is_over:
        log.warning(
            "a growth is under way",
            goes_on_with=f"freshet shards grow {growth.shards}",
            partitions=sorted(set(found.values())),
            settings=wanted,
        )
    elif growth.shards != wanted:
        log.info(
            "the shards have grown: the topics have more partitions than the settings say",
            partitions=growth.shards,
            settings=wanted,
        )
    return growth.shards


def mismatch(name: str, found: int | None, wanted: int) -> TopicMismatch:
    """The error of a topic that has other partitions than the settings say."""
    return TopicMismatch(
        f"topic {name} has {found} partitions on the broker, but the settings say {wanted}: set "
        "FRESHET_PARTITIONS to what the broker has, or use another FRESHET_TOPIC_PREFIX; only "
        "`freshet shards grow` gives the topics of an installation more partitions"
    )
