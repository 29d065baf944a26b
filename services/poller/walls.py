"""No server on the internet leads a reader of its stream behind our walls.

A stream's URL is the operator's: it may be of a machine of ours. Where its server redirects to is
the server's word, and a name may lead anywhere: it is the address of each connection that counts.
"""

import errno
import socket
from typing import Any

import aiohttp

from shared.runtime.fetching import PrivateAddress, is_inside


class Walls:
    """Of one attempt to connect to a stream, redirects included."""

    def __init__(self) -> None:
        self._is_redirected = False
        self._begins_inside = False

    def trace(self) -> aiohttp.TraceConfig:
        """Sees redirects."""
        seen = aiohttp.TraceConfig()
        seen.on_request_redirect.append(self._redirected)
        return seen

    async def _redirected(self, *_: object) -> None:
        self._is_redirected = True

    def socket(self, address_info: Any) -> socket.socket:
        """A socket for one address that is about to be connected to.

        Args:
            address_info: as by `socket.getaddrinfo`.

        Raises:
            PrivateAddress: a public server leads there.
        """
        family, kind, protocol, _, address = address_info
        if not self._is_redirected:
            self._begins_inside = is_inside(address_info)
        elif not self._begins_inside and is_inside(address_info):
            raise PrivateAddress(errno.EACCES, f"it redirects to {address[0]}, a private address")
        return socket.socket(family, kind, protocol)
