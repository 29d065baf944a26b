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

_LONGEST: Final = 64
"""Bytes of two references at most: one with more zeros in front is not taken for half of one."""

_UNDECIDED: Final = re.compile(
    rb"(?:&#(?:[xX]0*[dD][89abAB][0-9a-fA-F]{2}"
    rb"|0*5(?:529[6-9]|5[3-9][0-9]{2}|6[0-2][0-9]{2}|63[01][0-9]));)?"
    rb"(?:&[#xX0-9a-fA-F]*)?\Z"
)
"""The first half of a character, or the beginning of a reference, at the end."""

_EACH: Final = re.compile(rb"%s|((?:%s)+)" % (_LITERAL, _HALF), re.DOTALL)


def mended(text: bytes) -> bytes:
    """XML in which whole characters stand for halves that are written as references.

    Args:
        text: in any encoding that has ASCII as it is.
    """
    if _REFERENCE.search(text) is None:
        return text
    return _EACH.sub(lambda found: _joined(found[1]) if found[1] else found[0], text)


class Mender:
    """The same of a text that comes in parts, of which nothing is kept but a reference or two.

    In what is literal, and cut into two by parts, references may be written anew, too.
    """

    def __init__(self) -> None:
        self._rest = b""

    def mend(self, part: bytes, *, is_last: bool = False) -> bytes:
        """The next bytes, but for what only those after them decide."""
        text, self._rest = self._rest + part, b""
        if not is_last and (undecided := _UNDECIDED.search(text, max(len(text) - _LONGEST, 0))):
            text, self._rest = text[: undecided.start()], text[undecided.start() :]
        return mended(text)


def _joined(references: bytes) -> bytes:
    halves = "".join(
        chr(int(found[1], 16) if found[1] else int(found[2]))
        for found in _REFERENCE.finditer(references)
    )
    whole = halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return "".join(f"&#x{ord(character):X};" for character in whole).encode()
