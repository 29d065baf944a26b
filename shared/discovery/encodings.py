"""Which encoding a document in XML, or a list of URLs, is in. Pure."""

import codecs
import re
from typing import Final

UNREADABLE: Final = "\ufffd"
"""Stands for what could not be read: an address that has it is none."""

_BOMS: Final = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""That of UTF-32 begins as that of UTF-16 does."""

_DECLARED: Final = re.compile(
    rb"\s*<\?xml\s[^>]{0,200}?encoding\s*=\s*[\"']([A-Za-z][\w.:-]{0,40})[\"']"
)
_WIDER: Final = {
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "big5": "big5hkscs",
    "shift_jis": "cp932",
    "euc_kr": "cp949",
    "iso8859-1": "cp1252",
}
"""What is meant where these are said, as browsers have it (https://encoding.spec.whatwg.org)."""
_BY_BYTES: Final = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
"""Of what is said in ASCII itself, these are not true."""
_NO_ENCODINGS: Final = ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf-7")
"""That Python has under such names, and no document is in; some take long."""


class UnknownEncoding(ValueError):
    """A document names an encoding that nobody knows."""


def encoding_of(head: bytes) -> str:
    """Python's name for the encoding of a document that begins so.

    Raises:
        UnknownEncoding: says which.
    """
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    zeros = [byte == 0 for byte in head[:2]]
    if zeros in ([False, True], [True, False]):
        return "utf-16-be" if zeros[0] else "utf-16-le"
    declared = _DECLARED.match(head)
    if declared is None:
        return "utf-8"
    said = declared[1].decode()
    try:
        b"<".decode(said, "replace")  # is refused of what is no encoding of text
        name = codecs.lookup(said).name
    except LookupError:
        name = ""
    if not name or name in _NO_ENCODINGS:
        raise UnknownEncoding(f"unknown encoding {said!r}")
    return "utf-8" if name in _BY_BYTES else _WIDER.get(name, name)
