"""What the coordinator and the process that looks things up say to each other."""

from typing import Final

import msgspec

ANSWER_SECONDS: Final = 20
"""An answer may take so long, whatever is asked for."""


class Question(msgspec.Struct):
    """What the page asks for."""

    view: str
    """`page`, `host`, `hosts`, `sources` or `calibration`."""
    about: str = ""
    """The URL, the host, or the days."""


class Answer(msgspec.Struct):
    """What is said to it."""

    status: int
    """Of HTTP."""
    body: bytes
    """JSON: what was found, or `{"error": …}`."""
    trouble: str = ""
    """For the log, and not for strangers."""
