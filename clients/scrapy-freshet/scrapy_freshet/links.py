"""The links of a page, for those who look for new pages."""

from typing import Final

from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import LinkExtractor

from scrapy_freshet.messages import MOST_URL_CHARACTERS

MOST_LINKS: Final = 5_000
"""Of one page: what has more is a list of links, and the first ones say as much."""

_EXTRACTOR: Final = LinkExtractor(tags=("a", "area"), attrs=("href",))
_META: Final = (
    "//meta[translate(@name, 'ROBTS', 'robts') = 'robots']"
    "/@content[contains(translate(., 'NOFLWE', 'noflwe'), 'nofollow') "
    "or contains(translate(., 'NOE', 'noe'), 'none')]"
)


def links_of(response: Response) -> list[str]:
    """Absolute URLs of http and https that an HTML page links to, each once, in their order.

    Without fragments, and without what the page asks not to be followed: by `rel="nofollow"`, or
    all of it by the robots `meta` or the header `X-Robots-Tag`. What is no page by the end of its
    name (pictures, archives, ...) is left out. A page that no parser can read has none.
    """
    if not isinstance(response, HtmlResponse) or not _may_be_followed(response):
        return []
    try:
        found = [link.url for link in _EXTRACTOR.extract_links(response) if not link.nofollow]
    except ValueError:  # parsel's word for a tree that it cannot make
        return []
    urls = dict.fromkeys(url.partition("#")[0] for url in found)
    return [url for url in urls if len(url) <= MOST_URL_CHARACTERS][:MOST_LINKS]


def _may_be_followed(response: HtmlResponse) -> bool:
    header = b",".join(response.headers.getlist("X-Robots-Tag")).decode("latin-1").lower()
    said = {part.strip() for part in header.split(",")}
    try:
        return not ({"nofollow", "none"} & said or response.xpath(_META))
    except ValueError:
        return False
