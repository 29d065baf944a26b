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

OTHERS: Final = ("203.0.113.8", "2001:db8::8")
"""Addresses of all other hosts, in turn: name servers tell both."""

LIMITS: Final = {SHARED: SHARED_RATE, ADDRESS: ADDRESS_RATE}
"""Crawls per second by group."""


def address_of(host: str, now: float) -> str:
    """Where a crawler finds a host at a time, virtual seconds."""
    return ADDRESS if host in AT_ADDRESS else OTHERS[int(now) % 2]
