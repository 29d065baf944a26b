"""What URLFrontier's API calls crawls and queues: there is one crawl, and a queue is a host."""

from collections.abc import Callable
from typing import Final

import grpc

from services.frontier.refusing import Refused
from shared.contracts.identity import BadHost
from shared.rules.host_rules import meant_host

MOST_SHOWN: Final = 100
"""Characters of a name that is shown again."""


class Names:
    """Checks names, and gives them."""

    def __init__(
        self, crawl_id: str, is_known: Callable[[str], bool] = lambda _host: False
    ) -> None:
        """Make it.

        Args:
            crawl_id: that of the one crawl.
            is_known: whether there are requests of a host.
        """
        self.crawl_id = crawl_id
        self._is_known = is_known

    def check_crawl(self, crawl_id: str) -> None:
        """Check that a crawl is ours; none is.

        Raises:
            Refused: it is another one.
        """
        if crawl_id.strip() and crawl_id != self.crawl_id:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"there is no crawl {crawl_id[:MOST_SHOWN]!r}: all pages are of the crawl "
                f"{self.crawl_id!r}, which FRESHET_FRONTIER_CRAWL_ID names",
            )

    def host_of(self, key: str) -> str:
        """The host that a queue's key names. Port 80 or 443 goes without saying in it, but where
        pages are of a host that is called so, or the key has the scheme as well.

        Raises:
            Refused: it names none.
        """
        try:
            return meant_host(key, self._is_known)
        except BadHost as error:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"the key {key[:MOST_SHOWN]!r} is not a host, as example.com:8080 is",
            ) from error

    def host_or_all(self, key: str) -> str | None:
        """As `host_of`; None, which is all hosts, for an empty key."""
        return self.host_of(key) if key else None
