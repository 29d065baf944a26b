"""Asking a worker's web server."""

import http.client
import json
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Sequence
from typing import Any

ANSWER_SECONDS = 3.0

ALL_SECONDS = 6.0
"""Of several that do not answer, no more are asked after so long."""


def ask(address: str, path: str, **query: str) -> dict[str, Any] | None:
    """The JSON that a worker answers; None: it is not there, or does not know.

    Args:
        address: like http://127.0.0.1:6067.
        path: like /shards.
        query: parameters of the address.
    """
    if not address.startswith(("http://", "https://")):
        return None
    url = f"{address.rstrip('/')}{path}"
    if query:
        url += "?" + urllib.parse.urlencode(query)
    try:
        with urllib.request.urlopen(url, timeout=ANSWER_SECONDS) as answer:  # noqa: S310 - http only
            content = json.load(answer)
            return content if isinstance(content, dict) else None
    except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError):
        return None


def ask_each(addresses: Sequence[str], path: str, **query: str) -> dict[str, Any] | None:
    """What the first worker that knows answers, of several; None: none does (see `ask`).

    Args:
        addresses: of workers. One name may stand for many, as that of a headless service does.
        path: like /shards.
        query: parameters of the address.
    """
    until = time.monotonic() + ALL_SECONDS
    for name in addresses:
        for address in _standing_for(name) if time.monotonic() < until else ():
            answer = ask(address, path, **query) if time.monotonic() < until else None
            if answer:
                return answer
    return None


def _standing_for(address: str) -> Iterable[str]:
    """The addresses of all that a name stands for. None: it cannot be found now."""
    try:
        parts = urllib.parse.urlsplit(address)
        if parts.scheme != "http" or parts.hostname is None:
            return (address,)  # A certificate is the name's.
        found = socket.getaddrinfo(parts.hostname, parts.port or 80, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return ()
    ports = [(place[0], place[1]) for *_, place in found if isinstance(place[0], str)]
    netlocs = [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in ports]
    return dict.fromkeys(parts._replace(netloc=netloc).geturl() for netloc in netlocs)
