"""Characters that programs write as two references, a half each: `&#55357;&#56960;`. Pure.

XML has no such characters, so one of them, in a title that nobody asks for, makes a whole text
unreadable. A pair is the character that was meant, and half of one that which stands for what is
no character.
"""

import re
from typing import Final

_HALF: Final = rb"&#(?:[xX]0*([dD][89a-fA-F][0-9a-fA-F]{2})|0*(5[5-7][0-9]{3}));"
"""Whichever is not really half of a character is written anew as it is."""

_REFERENCE: Final = re.compile(_HALF)
_LITERAL: Final = rb"<!\[CDATA\[.*?(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|<\?.*?(?:\?>|\Z)"
"""In which nothing refers to anything."""

_EACH: Final = re.compile(rb"%s|((?:%s)+)" % (_LITERAL, _HALF), re.DOTALL)


def mended(text: bytes) -> bytes:
    """XML in which whole characters stand for halves that are written as references.

    Args:
        text: in any encoding that has ASCII as it is.
    """
    if _REFERENCE.search(text) is None:
        return text
    return _EACH.sub(lambda found: _joined(found[1]) if found[1] else found[0], text)


def _joined(references: bytes) -> bytes:
    halves = "".join(
        chr(int(found[1], 16) if found[1] else int(found[2]))
        for found in _REFERENCE.finditer(references)
    )
    whole = halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "".join(f"&#x{ord(character):X};" for character in whole).encode()
