"""Which hub a topic has: by its Link headers, then by the elements of its text. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urljoin

from shared.contracts.identity import identify
from shared.discovery.links import Links


@dataclass(frozen=True, slots=True)
class Topic:
    """What a topic says of itself."""

    hub: str
    topic: str
    """Its own name, by which the hub knows it."""


def discover(url: str, link_headers: Iterable[str], body: bytes) -> Topic | None:
    """The topic's hub; None: it has none.

    Args:
        url: where the topic came from.
        link_headers: its `Link` headers.
        body: HTML, Atom or RSS.
    """
    links = Links()
    links.note_headers(link_headers)
    if links.hub is None:
        links.feed(body.decode("utf-8", "replace"))
    if links.hub is None:
        return None
    hub = _joined(url, links.hub)
    if hub is None:
        return None
    return Topic(hub, _joined(url, links.own or url) or url)


def _joined(url: str, target: str) -> str | None:
    """Where a link leads, as hubs are to read it; None: to nothing that is a page."""
    try:
        joined = urljoin(url, target)
        identify(joined)
    except ValueError:  # `BadUrl`, too
        return None
    return joined
