"""Hosts that share a limit: a domain, and an address."""

from typing import Final

SHARED: Final = "shared.example"
SHARED_HOSTS: Final = ("host0.shared.example", "host1.shared.example")
"""Hosts of one server, which are in two shards."""

SHARED_RATE: Final = 1.0
"""Crawls per second that it can take: fewer than its pages are worth."""

ADDRESS: Final = "203.0.113.7"
AT_ADDRESS: Final = ("host2.example", SHARED_HOSTS[0])
"""Hosts of one machine, as crawlers find, in two shards; one of them keeps two limits."""

ADDRESS_RATE: Final = 1.2
"""Crawls per second that it can take."""

EACH: Final = "203.0.113.9"
AT_EACH: Final = ("host0.example", "host1.example", SHARED_HOSTS[1])
"""Hosts of another one, which has the limit of all addresses, in seeds that have one."""

EACH_RATE: Final = 0.3
"""Crawls per second of each address then: far fewer than its pages are worth, so that it binds."""

OTHERS: Final = ("203.0.113.8", "2001:db8::8")
"""Addresses of all other hosts, in turn: name servers tell both."""

LIMITS: Final = {SHARED: SHARED_RATE, ADDRESS: ADDRESS_RATE}
"""Crawls per second by group."""


def address_of(host: str, now: float, are_limited: bool) -> str | None:
    """Where a crawler finds a host at a time, virtual seconds; None: it does not say so.

    Args:
        host: its name.
        now: the time.
        are_limited: whether all addresses are.
    """
    if host in AT_ADDRESS:
        return ADDRESS
    if are_limited:
        return EACH if host in AT_EACH else None
    return OTHERS[int(now) % 2]
