"""Groups of hosts that share a limit: which one a host is of.

A group is a domain: its host, and all those below it. A host is of one group at most, that of the
nearest domain that has a limit. Lists of public suffixes have no say in it: the operator names the
domain, and no update of a list moves a host.
"""

from collections.abc import Container


def group_of(host: str, limited: Container[str]) -> str | None:
    """The group whose limit holds for a host; None: there is none.

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
