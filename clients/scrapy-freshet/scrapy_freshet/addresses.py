"""Which addresses a crawler may connect to.

Links and redirects may name any host, and any name may lead to an address of the crawler's own
network. So names are looked at when they are resolved, and addresses before they are asked.
"""

import ipaddress
from typing import Any

from scrapy.resolver import CachingThreadedResolver
from twisted.internet.defer import Deferred
from twisted.internet.error import DNSLookupError

_CARRIES_IPV4 = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::/96"))
"""Forms of IPv6 whose last 32 bits are an IPv4 address that they lead to."""

_NEVER_GLOBAL = tuple(
    ipaddress.IPv6Network(network)
    for network in ("64:ff9b:1::/48", "::ffff:0:0:0/96", "3fff::/20", "5f00::/16", "fec0::/10")
)
"""What Python takes for global, in some of its versions or all, and is not: NAT64 of one's own (RFC
8215), which leads to any IPv4 address, translated ones (RFC 2765), documentation (RFC 9637),
segments (RFC 9602), and local ones of before (RFC 3879)."""


def is_public(address: str) -> bool:
    """Whether an address is one of the public internet; what is no address is not.

    Args:
        address: IPv4 or IPv6, the latter with or without brackets.
    """
    try:
        parsed = ipaddress.ip_address(address.strip("[]").partition("%")[0])
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = parsed.ipv4_mapped or parsed.sixtofour
        if inner is None and any(parsed in network for network in _CARRIES_IPV4):
            inner = ipaddress.IPv4Address(int(parsed) & 0xFFFF_FFFF)
        if inner is not None:
            return is_public(str(inner))
        if any(parsed in network for network in _NEVER_GLOBAL):
            return False
    return parsed.is_global and not parsed.is_multicast


def is_private_literal(host: str | None) -> bool:
    """Whether a URL's host is an address, written as one, that is not public."""
    try:
        ipaddress.ip_address((host or "").strip("[]").partition("%")[0])
    except ValueError:
        return False
    return not is_public(host or "")


class PublicResolver(CachingThreadedResolver):
    """Scrapy's resolver, for which names that lead to other than public addresses do not exist."""

    def getHostByName(self, name: str, timeout: Any = ()) -> "Deferred[str]":  # noqa: N802 - Twisted's
        """The address of a name.

        Args:
            name: of a host.
            timeout: as Twisted has it.
        """
        return super().getHostByName(name, timeout).addCallback(_checked, name)


def _checked(address: str, name: str) -> str:
    if not is_public(address):
        raise DNSLookupError(
            f"{name} leads to {address}, which is not public; FRESHET_PRIVATE_ADDRESSES allows it"
        )
    return address
