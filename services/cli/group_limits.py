"""The limits of groups of hosts, as they stand on their topic."""

from services.cli.backup import read_standing
from services.cli.kafka import require_broker
from shared.contracts.codec import decode, encode
from shared.contracts.messages import GroupLimit
from shared.contracts.topics import GROUP_LIMITS
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings


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


async def publish_limit(settings: Settings, group: str, rate: float | None) -> None:
    """Set the limit of a group, or take it back, and wait for the broker."""
    require_broker(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        message = encode(GroupLimit(group, rate))
        await (await publisher.send(GROUP_LIMITS, group.encode(), message, partition=0))
    finally:
        await publisher.stop()


def registered_domain(host: str) -> str | None:
    """The domain that a host is registered under, by the list of public suffixes that is shipped;
    the host itself where it is an address; None: it is a public suffix."""
    from publicsuffixlist import PublicSuffixList  # noqa: PLC0415 - it reads its list

    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    if name.startswith("[") or name.rpartition(".")[2].isdigit():
        return name
    found: str | None = PublicSuffixList().privatesuffix(name)
    return found
