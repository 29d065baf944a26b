"""Weblogs' pings by XML-RPC: `weblogUpdates.ping` and `weblogUpdates.extendedPing`. Pure.

`ping(name, url[, changed page[, category]])`, as weblogs.com took it from 2001 on, and
`extendedPing(name, url, changed page[, feed[, tags]])`: each URL that is given is a page that may
have changed.
"""

import contextlib
from typing import Final
from xml.etree.ElementTree import Element
from xml.sax.saxutils import escape

from services.receiver.refusing import Refused
from services.receiver.texts import NotXml, read_xml
from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.discovery.encodings import UNREADABLE
from shared.runtime.pings import Ping
from shared.runtime.signal_bounds import SignalBounds

URLS_OF: Final = {"weblogUpdates.ping": (1, 2), "weblogUpdates.extendedPing": (1, 2, 3)}
"""Method → which of its parameters are URLs; only the first of them must be there."""

MOST_BYTES: Final = 16 * 1024
"""Of a call: no honest one comes near."""


def read_call(body: bytes, bounds: SignalBounds) -> list[Ping]:
    """The pages that a call names, of hosts that are taken.

    Raises:
        Refused: 400, it is no such call.
    """
    if len(body) > MOST_BYTES:
        raise Refused(413, f"at most {MOST_BYTES} bytes are taken")
    try:
        call = read_xml(body, forbid_dtd=True)
    except NotXml as error:
        raise Refused(400, f"not XML that is taken: {error}") from error
    method = (call.findtext("methodName") or "").strip()
    if call.tag != "methodCall" or method not in URLS_OF:
        raise Refused(400, f"only {' and '.join(URLS_OF)} can be called")
    parameters = [_text(value) for value in call.findall("params/param/value")]
    first, *more = [parameters[n] for n in URLS_OF[method] if n < len(parameters)] or [""]
    try:
        pages = [_page(first, bounds)]
    except BadUrl as error:
        raise Refused(400, f"url: {error}") from error
    for url in more:
        # Where the second or third may stand, some give a category, or nothing.
        with contextlib.suppress(BadUrl):
            pages.append(_page(url, bounds))
    return [Ping(page.url, page.host) for page in dict.fromkeys(pages)]


def answer(message: str, *, failed: bool) -> bytes:
    """The method's answer: the struct that senders look into."""
    return (
        '<?xml version="1.0"?><methodResponse><params><param><value><struct>'
        f"<member><name>flerror</name><value><boolean>{int(failed)}</boolean></value></member>"
        f"<member><name>message</name><value>{escape(message)}</value></member>"
        "</struct></value></param></params></methodResponse>"
    ).encode()


def _page(url: str, bounds: SignalBounds) -> PageIdentity:
    if UNREADABLE in url:
        raise BadUrl("it has characters that cannot be read in the encoding of the call")
    page = identify(url)
    bounds.check_host(page.host)
    return page


def _text(value: Element) -> str:
    """A parameter: a string may stand alone, or in an element."""
    inner = value.find("string")
    return ((inner if inner is not None else value).text or "").strip()
