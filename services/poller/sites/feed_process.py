"""Feeds are read in a process of their own, which ends itself when one takes it too long.

feedparser has regular expressions that some texts of 100 kB keep busy for minutes, and Python runs
nothing else meanwhile. Here the system's alarm ends the process, and the next feed starts another.
"""

import sys
from typing import Final

import msgspec

from services.poller.sites.entries import BadDocument, Entry, Summary
from services.poller.sites.feeds import read_feed
from shared.runtime.helper_process import HelperProcess, NoHelper, answer_all

FEED_BYTES: Final = 8 * 1024 * 1024
"""Of a feed; sitemaps, which need no memory, may be larger."""

FEED_SECONDS: Final = 10
MEMORY_BYTES: Final = 2 * 1024**3
"""Address space of the process, what it imports included."""


class _Question(msgspec.Struct):
    url: str
    text: bytes


class _Answer(msgspec.Struct):
    reason: str
    """Why there is none; empty: there is one."""
    entries: list[tuple[str, str]] = []
    hint_seconds: float | None = None


class FeedProcess:
    """Reads one feed at a time."""

    def __init__(self, seconds: int = FEED_SECONDS) -> None:
        """Make it; the process starts with the first feed.

        Args:
            seconds: that a feed may take.
        """
        self._seconds = seconds
        self._helper = HelperProcess(__name__, str(seconds))

    async def read(self, url: str, text: bytes) -> tuple[list[Entry], Summary]:
        """As `read_feed`.

        Raises:
            BadDocument: it is no feed, or takes too long, or no process can be started.
        """
        try:
            said = await self._helper.ask(msgspec.msgpack.encode(_Question(url, text)))
        except NoHelper as error:
            raise BadDocument(f"not read: {error}") from error
        if said is None:
            raise BadDocument(f"reading it takes more than {self._seconds} s, or too much memory")
        answer = msgspec.msgpack.decode(said, type=_Answer)
        if answer.reason:
            raise BadDocument(answer.reason)
        entries = [Entry(*entry) for entry in answer.entries]
        return entries, Summary("feed", answer.hint_seconds)

    def stop(self) -> None:
        """End the process."""
        self._helper.stop()


def _answered(message: bytes) -> bytes:
    question = msgspec.msgpack.decode(message, type=_Question)
    try:
        entries, summary = read_feed(question.url, question.text)
    except BadDocument as error:
        answer = _Answer(str(error))
    except Exception as error:
        answer = _Answer(f"it cannot be read: {error!r}"[:500])
    else:
        listed = [(entry.url, entry.stated) for entry in entries]
        answer = _Answer("", listed, summary.hint_seconds)
    return msgspec.msgpack.encode(answer)


if __name__ == "__main__":
    answer_all(_answered, int(sys.argv[1]), MEMORY_BYTES)
