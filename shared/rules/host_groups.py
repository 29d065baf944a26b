"""Groups of hosts that share a limit: which ones a host is of.

A group is a domain: its host, and all those below it. A host is of one such group at most, that of
the nearest domain that has a limit. Lists of public suffixes have no say in it: the operator names
the domain, and no update of a list moves a host.

Or a group is what crawlers name in their outcomes, as the address that they connected to. A host is
of one such group at most, whether it has a limit or not: the one that was named first, and then the
latest that is named a day or more after it came to the last one. So a host that moves is found at
once, if it has not just moved; and one of which a name server tells several addresses in turn goes
from one to another once a day at most.

What is of both keeps both limits.
"""

from collections.abc import Container
from typing import Final

from shared.units import SECONDS_PER_DAY

STAYS_SECONDS: Final = SECONDS_PER_DAY
"""A host is of a group that was named for so long at least."""


def group_of(host: str, limited: Container[str]) -> str | None:
    """The group whose limit holds for a host by its domain; None: there is none.

    Args:
        host: a URL's authority.
        limited: the groups that have limits.
    """
    domain = host if host.endswith("]") else host.rpartition(":")[0] or host
    while domain:
        if domain in limited:
            return domain
        domain = domain.partition(".")[2]
    return None


def goes_over(since: float, time: float) -> bool:
    """Whether a host of which a crawl names another group than it is of is of that one from now on.

    Args:
        since: time of the crawl by which it came to its group, Unix seconds; -inf: it has none.
        time: of the crawl.
    """
    return time >= since + STAYS_SECONDS
