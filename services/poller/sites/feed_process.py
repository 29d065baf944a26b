"""Feeds are read in a process of their own, which ends itself when one takes it too long.

feedparser has regular expressions that some texts of 100 kB keep busy for minutes, and Python runs
nothing else meanwhile. Here the system's alarm ends the process, and the next feed starts another.
"""

import asyncio
import resource
import signal
import subprocess
import sys
from typing import IO, Final

import msgspec

from services.poller.sites.entries import BadDocument, Entry, Summary
from services.poller.sites.feeds import read_feed

FEED_BYTES: Final = 8 * 1024 * 1024
"""Of a feed; sitemaps, which need no memory, may be larger."""

FEED_SECONDS: Final = 10
MEMORY_BYTES: Final = 2 * 1024**3
"""Address space of the process, what it imports included."""

_LENGTH_BYTES: Final = 4


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
        self._turn = asyncio.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    async def read(self, url: str, text: bytes) -> tuple[list[Entry], Summary]:
        """As `read_feed`.

        Raises:
            BadDocument: it is no feed, or takes too long.
        """
        async with self._turn:
            answer = await asyncio.to_thread(self._ask, _Question(url, text))
        if answer.reason:
            raise BadDocument(answer.reason)
        entries = [Entry(*entry) for entry in answer.entries]
        return entries, Summary("feed", answer.hint_seconds)

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            process.wait()

    def _ask(self, question: _Question) -> _Answer:
        if self._process is None:
            command = [sys.executable, "-m", __name__, str(self._seconds)]
            self._process = subprocess.Popen(  # noqa: S603 - ourselves
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
            )
        try:
            _send(self._process.stdin, msgspec.msgpack.encode(question))
            answer = _receive(self._process.stdout)
        except (OSError, ValueError):
            answer = None
        if answer is None:
            self.stop()
            return _Answer(f"reading it takes more than {self._seconds} s, or too much memory")
        return msgspec.msgpack.decode(answer, type=_Answer)


def _send(pipe: IO[bytes] | None, message: bytes) -> None:
    if pipe is None:
        raise OSError("there is no pipe")
    left = memoryview(len(message).to_bytes(_LENGTH_BYTES, "big") + message)
    while left:
        left = left[pipe.write(left) :]


def _receive(pipe: IO[bytes] | None) -> bytes | None:
    """A message; None: nobody sends any more."""
    length = _exactly(pipe, _LENGTH_BYTES)
    return None if length is None else _exactly(pipe, int.from_bytes(length, "big"))


def _exactly(pipe: IO[bytes] | None, count: int) -> bytes | None:
    got = bytearray()
    while pipe is not None and len(got) < count:
        part = pipe.read(count - len(got))
        if not part:
            return None
        got += part
    return bytes(got)


def _answered(question: _Question) -> _Answer:
    try:
        entries, summary = read_feed(question.url, question.text)
    except BadDocument as error:
        return _Answer(str(error))
    except Exception as error:
        return _Answer(f"it cannot be read: {error!r}"[:500])
    return _Answer("", [(entry.url, entry.stated) for entry in entries], summary.hint_seconds)


def main() -> None:
    """Answer questions until there are no more."""
    seconds = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    source, target = open(0, "rb", 0), open(1, "wb", 0)  # noqa: SIM115 - to the end
    while (message := _receive(source)) is not None:
        # Python itself would not hear it in the middle of a regular expression.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(seconds)
        _send(
            target,
            msgspec.msgpack.encode(_answered(msgspec.msgpack.decode(message, type=_Question))),
        )
        signal.alarm(0)


if __name__ == "__main__":
    main()
