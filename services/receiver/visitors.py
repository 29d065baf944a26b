"""Who sends a request."""

from collections.abc import Collection

from aiohttp import web


def address_of(request: web.Request, proxies: Collection[str]) -> str:
    """Whose request it is; where a proxy of ours passes it on, whose that proxy says."""
    address = request.remote or ""
    if address not in proxies:
        return address
    forwarded = request.headers.getall("X-Forwarded-For", [])
    return ",".join(forwarded).rpartition(",")[2].strip() or address
