"""Documents that are compared once more though they say what they said before. Pure.

Of some, addresses were left out: robots.txt forbade them, or that of their host could not be had,
or has so many rules that not all were judged. Each may be otherwise later. When to look is kept
behind the document's digest, eight bytes more; until then it is asked for and compared as any
other, and a site that forbids for ever costs one whole reading a day.
"""

import struct
from collections.abc import Collection
from typing import Final

from services.poller.sites.rules import DISALLOWED, LATE, UNKNOWN
from shared.units import SECONDS_PER_DAY

UNKNOWN_SECONDS: Final = 3600.0
"""A host whose robots.txt could not be had is asked again after so long, not at each poll."""

WAITS: Final = {DISALLOWED: SECONDS_PER_DAY, UNKNOWN: UNKNOWN_SECONDS, LATE: UNKNOWN_SECONDS}
_DIGEST_BYTES: Final = 16
_TIME: Final = struct.Struct("<d")


def noted(digest: bytes, left_out: Collection[str], now: float, longest_seconds: float) -> bytes:
    """What to store as the digest of a document.

    Args:
        digest: its own.
        left_out: why addresses were; empty: none was.
        now: Unix seconds.
        longest_seconds: how long a robots.txt is believed.
    """
    if not left_out:
        return digest
    wait = min(WAITS[why] for why in left_out)
    return digest + _TIME.pack(now + min(wait, longest_seconds))


def says_the_same(stored: bytes, digest: bytes) -> bool:
    """Whether a document says what it said before, though it is compared."""
    return digest == stored[:_DIGEST_BYTES]


def to_match(stored: bytes, now: float) -> bytes:
    """The digest of a document that need not be compared; empty: every one is to be."""
    digest, written = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
    if not written:
        return digest
    [at] = _TIME.unpack(written)
    # One that is further ahead was noted while a clock was wrong.
    return digest if now < at <= now + SECONDS_PER_DAY else b""
