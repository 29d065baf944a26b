"""Asking a worker's web server."""

import json
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
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
            content: dict[str, Any] = json.load(answer)
            return content
    except (urllib.error.URLError, OSError, ValueError):
        return None


def ask_each(addresses: Sequence[str], path: str, **query: str) -> dict[str, Any] | None:
    """What the first worker that knows answers, of several; None: none does (see `ask`)."""
    until = time.monotonic() + ALL_SECONDS
    for address in addresses:
        answer = ask(address, path, **query) if time.monotonic() < until else None
        if answer:
            return answer
    return None
