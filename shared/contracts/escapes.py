"""Half of a character in JSON, as programs that cut texts write it: `"caf\\ud83d"`. Pure."""

import re
from typing import Final

_HALF: Final = re.compile(
    rb"\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F][0-9a-fA-F]{2})"
    rb"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F][0-9a-fA-F]{2})"
)
"""Without the other one before or behind it."""

_NO_CHARACTER: Final = rb"\u007f"
"""Stands for one: a control character, which no name and no URL of a page may have."""

_BACKSLASH: Final = rb"\\"
"""One that is escaped, and begins no escape itself."""


def whole_characters(text: bytes) -> bytes:
    """JSON without halves of characters: it may have them (RFC 8259, section 8.2), and the strict
    decoder refuses all of a text for one, in whichever field it is.

    Args:
        text: as it came. What is no JSON may come out as something else that is none.
    """
    if _HALF.search(text) is None or b"\0" in text:
        return text
    found = _HALF.sub(lambda _: _NO_CHARACTER, text.replace(_BACKSLASH, b"\0"))
    return found.replace(b"\0", _BACKSLASH)
