"""Pages that load themselves anew: live ones, as those of news are, and slides that go round.

Scrapy follows each refresh of less than `METAREFRESH_MAXDELAY`, up to twenty in a row, and then
gives the page up: one that shows its readers what is new each minute would never be had, at
twenty-one requests a crawl. What such a page shows is its content.
"""

from typing import Final

from scrapy import Request, Spider
from scrapy.downloadermiddlewares.redirect import MetaRefreshMiddleware
from scrapy.http import HtmlResponse, Response
from scrapy.utils.response import get_meta_refresh

from scrapy_freshet.moving import is_same_page

READ_SECONDS: Final = 5.0
"""A page that is shown for so long is there to be read; one that is gone sooner may only set a
cookie, and is asked for once more."""


class OnceAroundMiddleware(MetaRefreshMiddleware):
    """Scrapy's own, which follows no refresh to where the crawl has been already."""

    def process_response(
        self,
        request: Request,
        response: Response,
        spider: Spider | None = None,
    ) -> Request | Response:
        """Follow a refresh, or take what is there for the page."""
        more = [] if spider is None else [spider]  # Scrapy 2.13 gives it
        if isinstance(response, HtmlResponse) and self._leads_around(request, response):
            return response
        return super().process_response(request, response, *more)

    def _leads_around(self, request: Request, response: HtmlResponse) -> bool:
        seconds, url = get_meta_refresh(response, ignore_tags=self._ignore_tags)
        if seconds is None or url is None:
            return False
        passed = [*request.meta.get("redirect_urls", []), request.url]
        times = sum(is_same_page(url, one) for one in passed)
        return times >= (1 if seconds >= READ_SECONDS else 2)
