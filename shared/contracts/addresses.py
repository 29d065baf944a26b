"""Addresses, which programs and people write in several ways. Pure."""

from functools import lru_cache
from ipaddress import ip_address


@lru_cache(maxsize=1 << 16)
def usual_address(written: str) -> str | None:
    """An address in its usual spelling (RFC 5952); None: it is none.

    `2001:db8:0:0:0:0:0:7`, as Java writes it, is `2001:db8::7`; and what IPv6 only wraps
    (`::ffff:203.0.113.7`) is the address of IPv4.
    """
    try:
        address = ip_address(written)
    except ValueError:
        return None
    inner = address.ipv4_mapped if address.version == 6 else None
    return str(address if inner is None else inner)
