"""What matters in a page: its words, without what is around them."""

import hashlib
from typing import Final

from scrapy.http import HtmlResponse, Response

_AROUND: Final = ("script", "style", "noscript", "template", "nav", "header", "footer", "aside")
_NOT_AROUND: Final = " and ".join(f"not(ancestor::{name})" for name in _AROUND)
_MAIN: Final = "//main | //*[@role='main']"
_DIGEST_BYTES: Final = 16


def digest_of(response: Response) -> str:
    """A digest of what matters in a page: of HTML the main content's words, else every byte.

    Two pages with the same words have the same digest, whatever their scripts, menus and spaces. A
    page without any words, as scripts fill it, is looked at as bytes.
    """
    words = main_words(response) if isinstance(response, HtmlResponse) else []
    content = " ".join(words).encode() if words else response.body
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def main_words(response: HtmlResponse) -> list[str]:
    """The words of a page's title and main content, in their order.

    The main content is what `<main>` holds, or else the body, without navigation, headers, footers,
    asides and scripts. Without a parser's tree (a broken page) there are none.
    """
    try:
        main = response.xpath(_MAIN)
        roots = main[:1] if main else response.xpath("//body")
        title = response.xpath("//head/title//text()").getall()
        # What is around counts within the main content too, but not around it.
        texts = roots.xpath(f".//text()[{_NOT_AROUND}]").getall()
    except ValueError:  # parsel's word for a tree that it cannot make
        return []
    return [word for text in (*title, *texts) for word in text.split()]
