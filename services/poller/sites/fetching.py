"""One conditional GET of a source, its document read as it comes."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.poller.sites.documents import DOCUMENT_BYTES, Document
from services.poller.sites.entries import Give, Summary
from services.poller.sites.feed_process import FeedProcess
from services.poller.sites.looking_again import to_match
from shared.discovery.dates import read_date
from shared.discovery.robots import to_the_web
from shared.runtime.fetching import Fetcher, FetchFailed
from shared.store.watched import DueSource

_PART_BYTES: Final = 256 * 1024
"""Read in a thread at a time."""

_MOST_VALIDATOR: Final = 500
"""Characters of an ETag or a date that are kept."""

_UNCONDITIONAL: Final = {"Accept-Encoding": "gzip"}
_BUSY: Final = frozenset({429, 503})


class Busy(FetchFailed):
    """The host asks for a pause."""

    def __init__(self, reason: str, seconds: float | None) -> None:
        super().__init__(reason)
        self.seconds = seconds
        """How long; None: it does not say."""


@dataclass(frozen=True, slots=True)
class Got:
    """A document that says something that it did not say before, or is to be compared again."""

    url: str
    """Where it came from in the end; what it writes relatively is from there."""
    summary: Summary
    digest: bytes
    etag: str
    last_modified: str


class Same(NamedTuple):
    """A document that says what it said before; what to ask its server with the next time."""

    etag: str
    last_modified: str


async def fetch(
    fetcher: Fetcher, feeds: FeedProcess, due: DueSource, give: Give, now: float
) -> Got | Same:
    """Read a source.

    Args:
        fetcher: started.
        feeds: reads feeds.
        due: which, and what is known of it.
        give: called with the entries, in a thread.
        now: Unix seconds.

    Raises:
        Busy: not now.
        FetchFailed: it cannot be had.
        BadDocument: it cannot be read.
    """
    same = to_match(due.digest, now)
    document = _Gathering(Document(due.url, give, feeds))
    answer = await fetcher.get(
        due.url,
        max_bytes=DOCUMENT_BYTES,
        may_follow=to_the_web,
        headers=_conditions(due) if same else _UNCONDITIONAL,
        take=document.take,
    )
    etag, modified = _kept(answer.headers, "ETag"), _kept(answer.headers, "Last-Modified")
    if answer.status == 304 and same:
        return Same(etag or due.etag, modified or due.last_modified)
    if answer.status in _BUSY:
        asked = _seconds_until(answer.headers.get("Retry-After", ""), now)
        raise Busy(f"it answers {answer.status}", asked)
    if answer.status != 200:
        raise FetchFailed(f"it answers {answer.status}")
    digest = await document.end()
    if digest == same:
        return Same(etag, modified)
    document.document.url = answer.url
    summary = await document.document.close()
    return Got(answer.url, summary, digest, etag, modified)


class _Gathering:
    """Hands a document's parts to a thread, many at a time."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._held = bytearray()

    async def take(self, part: bytes) -> None:
        self._held += part
        if len(self._held) >= _PART_BYTES:
            await self._pass_on()

    async def end(self) -> bytes:
        await self._pass_on()
        return await asyncio.to_thread(self.document.end)

    async def _pass_on(self) -> None:
        part, self._held = bytes(self._held), bytearray()
        await asyncio.to_thread(self.document.feed, part)


def _conditions(due: DueSource) -> dict[str, str]:
    headers = dict(_UNCONDITIONAL)
    if due.etag:
        headers["If-None-Match"] = due.etag
    if due.last_modified:
        headers["If-Modified-Since"] = due.last_modified
    return headers


def _kept(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    return value if len(value) <= _MOST_VALIDATOR and value.isascii() else ""


def _seconds_until(written: str, now: float) -> float | None:
    """Seconds of a Retry-After, which says how many or when; None: neither."""
    text = written.strip()
    if text.isdecimal():
        return float(text) if len(text) < 10 else None
    at = read_date(text)
    return None if at is None else max(at.at - now, 0.0)
