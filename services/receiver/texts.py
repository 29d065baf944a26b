"""Texts as senders write them. Pure."""

from typing import Final
from xml.etree.ElementTree import Element, ParseError

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import DefusedXMLParser

from shared.discovery.encodings import encoding_of
from shared.discovery.surrogates import mended

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\r\n"
_HEAD_BYTES: Final = 4096


class NotXml(ValueError):
    """A text that is none, or none that is taken; it says why."""


def trimmed(body: bytes) -> bytes:
    """A text without the mark of editors and the blank lines before it, which XML and JSON do not
    allow: sites in PHP send those that stand in any of their files."""
    return body.removeprefix(BYTE_ORDER_MARK).lstrip(_BLANKS)


def read_xml(body: bytes, *, forbid_dtd: bool = False) -> Element:
    """The root of a text in XML, in whichever encoding it is: the parser itself knows few. What
    cannot be read in it becomes U+FFFD, as in the name of a weblog, which nobody asks for.

    Args:
        body: of a request.
        forbid_dtd: refuse document types, too; entities are refused in any case.

    Raises:
        NotXml: it is none.
    """
    try:
        text = body.decode(encoding_of(body[:_HEAD_BYTES]), "replace").encode("utf-8", "replace")
        parser = DefusedXMLParser(encoding="utf-8", forbid_dtd=forbid_dtd)
        parser.feed(mended(trimmed(text)))
        root: Element = parser.close()
    except (ParseError, DefusedXmlException, ValueError, LookupError) as error:
        raise NotXml(str(error)) from error
    return root
