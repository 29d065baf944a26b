"""Who sends a request."""

import ipaddress
from collections.abc import Collection, Container
from functools import lru_cache
from typing import Final

from aiohttp import web

_NETWORK_BITS: Final = 64
"""Of IPv6: so much is given to one subscriber or machine, who may use any address of it."""


class Proxies(Container[str]):
    """Addresses of proxies of ours, whose word on others is believed."""

    def __init__(self, networks: Collection[str]) -> None:
        """Take addresses and networks, as the setting has them."""
        self._networks = [ipaddress.ip_network(network) for network in networks]

    def __contains__(self, address: object) -> bool:
        """Whether an address is of them, in whichever of its forms a socket says it."""
        place = place_of(address) if isinstance(address, str) else None
        if place is None:
            return False
        return any(place in network for network in self._networks)


def address_of(request: web.Request, proxies: Container[str]) -> str:
    """Whose request it is; where proxies of ours pass it on, whose they say."""
    address = request.remote or ""
    if address not in proxies:
        return address
    forwarded = ",".join(request.headers.getall("X-Forwarded-For", []))
    for said in reversed(forwarded.split(",")):
        if not said.strip():
            break
        address = _without_port(said.strip())
        # What stands before was written by whoever this is.
        if address not in proxies:
            break
    return address


def _without_port(said: str) -> str:
    """An address, as some proxies write it with the port that it came from."""
    if said.startswith("["):
        return said[1:].partition("]")[0]
    address, _, port = said.partition(":")
    return address if port.isdecimal() else said


@lru_cache(maxsize=1 << 14)
def visitor_of(address: str) -> str:
    """For whom the limits of an address hold: of IPv6, its network of 64 bits."""
    place = place_of(address)
    if place is None:
        return address
    if isinstance(place, ipaddress.IPv4Address):
        return str(place)
    return str(ipaddress.IPv6Network((place, _NETWORK_BITS), strict=False))


def place_of(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Where it is, that of IPv4 as IPv4 however it is written; None: it is no address."""
    try:
        place = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(place, ipaddress.IPv6Address) and place.ipv4_mapped is not None:
        return place.ipv4_mapped
    return place
