"""Which addresses of a document count: those of the site's hosts that the patterns let pass."""

from collections.abc import Mapping, Sequence
from typing import Final

from services.poller.sites.news import News
from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.discovery.patterns import Patterns
from shared.discovery.robots import Robots

REFUSED: Final = "refused"
"""Another host, a pattern: it is not looked at again."""

BAD: Final = "bad"
"""No URL: it is not looked at again, either."""

DISALLOWED: Final = "disallowed"
"""By robots.txt, which may change."""

UNKNOWN: Final = "unknown"
"""What robots.txt says of it, as that cannot be had now."""

LATE: Final = "late"
"""The same, as it takes too long to find out: a file may have tens of thousands of rules."""


class SiteRules:
    """Of one site."""

    def __init__(
        self, hosts: Sequence[str], include: Sequence[str], exclude: Sequence[str]
    ) -> None:
        """Make them.

        Args:
            hosts: whose pages count.
            include: patterns with `*`, of whole URLs; empty: all URLs fit.
            exclude: what fits one of these does not count.
        """
        self._hosts = frozenset(hosts)
        self._patterns = Patterns(include, exclude)

    def page_of(self, news: News, robots: Mapping[str, Robots]) -> PageIdentity | str:
        """The page, or why it does not count: `REFUSED`, `BAD`, `DISALLOWED`, `UNKNOWN`.

        Args:
            news: of an address.
            robots: by origin; without those that cannot be had.
        """
        page = self._counted(news)
        if isinstance(page, str):
            return page
        own = robots.get(_origin_of(page))
        if own is None:
            return UNKNOWN
        return page if own.allows(page.url) else DISALLOWED

    def origins_of(self, news: Sequence[News]) -> set[str]:
        """Of the addresses that count, where their robots.txt is: scheme and authority, with a
        slash."""
        pages = [self._counted(one) for one in news]
        return {_origin_of(page) for page in pages if not isinstance(page, str)}

    def _counted(self, news: News) -> PageIdentity | str:
        """The page, whatever robots.txt says; or `REFUSED`, `BAD`."""
        try:
            page = identify(news.url)
        except BadUrl:
            return BAD
        if page.host not in self._hosts or not self._patterns.let_pass(page.url):
            return REFUSED
        return page


def _origin_of(page: PageIdentity) -> str:
    return f"{page.url.partition(':')[0]}://{page.host}/"
