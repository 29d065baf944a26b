"""The links of a page, for those who look for new pages."""

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urljoin

from scrapy.http import HtmlResponse, Response
from scrapy.linkextractors import IGNORED_EXTENSIONS
from scrapy.utils.misc import rel_has_nofollow
from scrapy.utils.response import get_base_url
from scrapy.utils.url import url_has_any_extension
from w3lib.html import strip_html5_whitespace
from w3lib.url import safe_url_string

from scrapy_freshet.messages import MOST_URL_CHARACTERS

MOST_LINKS: Final = 5_000
"""Of one page: what has more is a list of links, and the first ones say as much."""

_NO_PAGES: Final = tuple(f".{extension}" for extension in IGNORED_EXTENSIONS)
_META: Final = "//meta[translate(@name, 'ROBTS', 'robts') = 'robots']/@content"
_NOT_FOLLOWED: Final = frozenset({"nofollow", "none"})
_HAVE_VALUES: Final = frozenset(
    {"max-image-preview", "max-snippet", "max-video-preview", "unavailable_after"}
)
"""Rules of robots that a colon and a value follow, as it does the name of a crawler otherwise."""

_AGENT: Final = re.compile(r"[\w.*/-]+")


def links_of(response: Response, agent: str = "") -> list[str]:
    """Absolute URLs of http and https that an HTML page links to, each once, in their order.

    Without fragments, and without what the page asks not to be followed: by `rel="nofollow"`, or
    all of it by the robots `meta` or the header `X-Robots-Tag`. What is no page by the end of its
    name (pictures, archives, ...) is left out. A page that no parser can read has none.

    Args:
        response: the page.
        agent: as whom it was asked for: what the header says to other crawlers does not count.
    """
    if not isinstance(response, HtmlResponse) or not _may_be_followed(response, agent.lower()):
        return []
    try:
        hrefs = _first_hrefs(response)
    except ValueError:  # parsel's word for a tree that it cannot make
        return []
    base, urls = get_base_url(response), dict[str, bool]()
    for href, is_followed in hrefs.items():
        if url := _url_of(href, base, response):
            urls.setdefault(url, is_followed)
    found = dict.fromkeys(url.partition("#")[0] for url, followed in urls.items() if followed)
    # A host that IDNA refuses stays as it was written: there is no such page.
    return [url for url in found if url.isascii() and len(url) <= MOST_URL_CHARACTERS]


def _first_hrefs(response: HtmlResponse) -> dict[str, bool]:
    """What the first links name, as written → whether the first that names it may be followed.

    Scrapy's own extractor makes a URL and a text of every link, which takes seconds of a page that
    has a hundred thousand, and longer where links are within links.
    """
    hrefs: dict[str, bool] = {}
    for element in response.selector.root.iter("a", "area"):
        if (href := element.get("href")) is not None:
            hrefs.setdefault(href, not rel_has_nofollow(element.get("rel")))
            if len(hrefs) == MOST_LINKS:
                break
    return hrefs


def _url_of(href: str, base: str, response: HtmlResponse) -> str | None:
    """The URL that a link leads to, made as Scrapy does; None: there is no page."""
    try:
        url = urljoin(base, strip_html5_whitespace(href))
        url = urljoin(response.url, safe_url_string(url, response.encoding))
        is_page = not url_has_any_extension(url, _NO_PAGES)
    except ValueError:
        return None
    return url if is_page and url.startswith(("http://", "https://")) else None


def _may_be_followed(response: HtmlResponse, agent: str) -> bool:
    try:
        rules = {rule for said in response.xpath(_META).getall() for rule in _parts(said)}
    except ValueError:
        return False
    for header in response.headers.getlist("X-Robots-Tag"):
        rules.update(_rules_for(agent, header.decode("latin-1")))
    return not rules & _NOT_FOLLOWED


def _parts(said: str) -> list[str]:
    return [part.strip() for part in said.lower().split(",")]


def _rules_for(agent: str, header: str) -> Iterator[str]:
    """What a header says to a crawler: behind a crawler's name and a colon, all is for that one."""
    is_ours = True
    for part in _parts(header):
        name, colon, rule = (word.strip() for word in part.partition(":"))
        is_agent = bool(colon) and name not in _HAVE_VALUES and _AGENT.fullmatch(name) is not None
        if is_agent:
            is_ours = name == "*" or name in agent
        if is_ours:
            yield rule if is_agent else part
