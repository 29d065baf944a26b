"""Texts as senders write them. Pure."""

from typing import Final

BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BLANKS: Final = b" \t\r\n"


def trimmed(body: bytes) -> bytes:
    """A text without the mark of editors and the blank lines before it, which XML and JSON do not
    allow: sites in PHP send those that stand in any of their files."""
    return body.removeprefix(BYTE_ORDER_MARK).lstrip(_BLANKS)
