"""What was told of the crawl-delays of hosts, so that only news are."""

from collections.abc import Iterable
from typing import Final

from scrapy_freshet.messages import HostLimit

MOST_HOSTS: Final = 10_000
"""Beyond, all are forgotten, and told once more."""


class Delays:
    """The last that was said of each host."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def news(self, host: str, seconds: float, under_way: Iterable[str]) -> HostLimit | None:
        """What is to be said of a host, which counts as said; None: nothing.

        Args:
            host: of a robots.txt.
            seconds: that it asks for; 0: nothing any more. That is said of hosts whose pages are
                under way, too: a crawler of before may have said otherwise.
            under_way: hosts of such pages.
        """
        if self._told.get(host) == seconds:
            return None
        if not seconds and host not in self._told and host not in under_way:
            return None
        if len(self._told) >= MOST_HOSTS:
            self._told.clear()
        self._told[host] = seconds
        return HostLimit(_as_said(host), 1.0 / seconds if seconds else None, seconds)


def _as_said(host: str) -> str:
    """With its scheme, where the port would else be taken for one that goes without saying."""
    if not host.endswith((":80", ":443")):
        return host
    return f"{'https' if host.endswith(':80') else 'http'}://{host}"
