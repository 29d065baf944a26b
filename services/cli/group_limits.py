"""The limits of groups of hosts, as they stand on their topic."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address

from services.cli.databases import url_of_host
from services.cli.errors import UserError
from services.cli.kafka import publishing
from services.cli.standing import read_standing
from shared.contracts.codec import decode, encode
from shared.contracts.messages import GroupLimit
from shared.contracts.topics import GROUP_LIMITS, HOST_LIMITS
from shared.pacing.groups import most_groups
from shared.rules.host_groups import group_of
from shared.runtime.kafka import topic_partitions
from shared.runtime.settings import Settings
from shared.store.host_listing import read_host


async def standing_limits(settings: Settings) -> dict[str, float]:
    """Crawls per second by group, of those that have a limit, by name.

    Raises:
        KafkaError: the topic cannot be read.
    """
    standing = await read_standing(settings, GROUP_LIMITS)
    found = [decode(GroupLimit, value) for _, value in sorted(standing.items())]
    return {
        of.group: of.max_crawls_per_second for of in found if of.max_crawls_per_second is not None
    }


async def room_for_limits(settings: Settings) -> int:
    """How many groups may have limits where there are as many shards as the topics have partitions:
    settings may say the number of before a growth.

    Raises:
        KafkaError: the broker cannot be asked.
    """
    found = await topic_partitions(settings, [HOST_LIMITS])
    return most_groups(len(found[HOST_LIMITS.name]) or settings.partitions)


async def require_room(settings: Settings, shards: int) -> None:
    """Make sure that the limits which stand would all hold with so many shards. To be asked before
    the topics have partitions for them: then it is too late, and nothing is refused.

    Raises:
        UserError: there would be room for fewer groups.
        KafkaError: the topics cannot be read.
    """
    standing, room = await standing_limits(settings), most_groups(shards)
    if len(standing) > room and room < await room_for_limits(settings):
        raise UserError(
            f"{len(standing)} groups have limits, and with {shards} shards there is room for "
            f"{room}: those of the others would not hold any more, of {sorted(standing)[room]} for "
            "one. Take some back first, `freshet groups unlimit`: there is no way back to fewer "
            "shards"
        )


async def publish_limit(settings: Settings, group: str, rate: float | None) -> None:
    """Set the limit of a group, or take it back, and wait for the broker.

    Raises:
        SystemFailed: the broker does not acknowledge it.
    """
    async with publishing(settings) as publisher:
        message = encode(GroupLimit(group, rate))
        await publisher.send(GROUP_LIMITS, group.encode(), message, partition=0)


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A limit that a host shares with others."""

    group: str
    max_crawls_per_second: float
    by: str = "operators"
    """`default`: it is the one of all groups that crawlers name."""


def limits_of(
    host: str, named: str | None, standing: Mapping[str, float], default: float | None
) -> tuple[SharedLimit, ...]:
    """The limits that a host shares, the one that binds first.

    Args:
        host: a URL's authority.
        named: the group that outcomes name; None: none does.
        standing: crawls per second by group.
        default: of groups that crawlers name, and that have no limit of their own; None: none.
    """
    names = {group_of(host, standing), named} & standing.keys()
    found = [SharedLimit(name, standing[name]) for name in sorted(n for n in names if n)]
    if default is not None and named is not None and named not in standing:
        found.append(SharedLimit(named, default, "default"))
    return tuple(sorted(found, key=lambda limit: limit.max_crawls_per_second))


def named_group(settings: Settings, host: str) -> str | None:
    """The group that outcomes say a host is of; None: none does, or nobody knows the host.

    Raises:
        psycopg.Error: the database is away, or refuses.
    """
    row = read_host(url_of_host(settings, host), host)
    return None if row is None else row["named_group"]


def registered_domain(host: str) -> str | None:
    """The domain that a host is registered under, by the list of public suffixes that is shipped;
    the host itself where it is an address; None: it is a public suffix."""
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - it reads its list

    with contextlib.suppress(ValueError):
        return str(ip_address(host))
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.startswith("[") or name.rpartition(".")[2].isdigit():
        return name
    found: str | None = PublicSuffixList().privatesuffix(name)
    return found
