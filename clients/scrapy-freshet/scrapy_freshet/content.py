"""What matters in a page: its words, without what is around them."""

import hashlib
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from scrapy.http import HtmlResponse, Response

_AROUND: Final = frozenset(
    {"script", "style", "noscript", "template", "nav", "header", "footer", "aside"}
)
_MAIN: Final = "//main | //*[@role='main']"
_DIGEST_BYTES: Final = 16


def digest_of(response: Response) -> str:
    """A digest of what matters in a page: of HTML the main content's words, else every byte.

    Two pages with the same words have the same digest, whatever their scripts, menus and spaces. A
    page without any words but its title, as scripts fill it, is looked at as bytes.
    """
    words = main_words(response) if isinstance(response, HtmlResponse) else []
    content = " ".join(words).encode() if words else response.body
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def main_words(response: HtmlResponse) -> list[str]:
    """The words of a page's title and main content, in their order.

    The main content is what `<main>` holds, or else the body, without navigation, headers, footers,
    asides and scripts. Where it has no words there are none, whatever the title says, nor without a
    parser's tree (a broken page).
    """
    try:
        title = response.xpath("//head/title//text()").getall()
        for roots in (response.xpath(_MAIN)[:1], response.xpath("//body")):
            texts = chain.from_iterable(_texts(root.root) for root in roots)
            if words := [word for text in texts for word in text.split()]:
                return [word for text in title for word in text.split()] + words
    except ValueError:  # parsel's word for a tree that it cannot make
        pass
    return []


def _texts(root: Any) -> Iterator[str]:
    """The texts of an element of lxml's that are not within anything around, in their order.

    Each element is looked at once, as pages that are made for it have hundreds of thousands of
    texts below thousands of elements: to ask each of them what it is within takes minutes.
    """
    if any(element.tag in _AROUND for element in (root, *root.iterancestors())):
        return
    ahead = [(root, False)]
    while ahead:
        element, is_over = ahead.pop()
        if is_over:
            yield element.tail or ""
            continue
        if element is not root:
            ahead.append((element, True))
        # Comments and the like have no name.
        if isinstance(element.tag, str) and element.tag not in _AROUND:
            yield element.text or ""
            ahead += ((child, False) for child in element.iterchildren(reversed=True))
