"""One conditional GET of a source, its document read as it comes."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from services.poller.sites.documents import DOCUMENT_BYTES, Document
from services.poller.sites.entries import Give, Summary
from services.poller.sites.feed_process import FeedProcess
from services.poller.sites.looking_again import to_match
from shared.discovery.busy import require_not_busy
from shared.discovery.robots import to_the_web
from shared.runtime.fetching import Fetcher, FetchFailed
from shared.store.watched import DueSource

_PART_BYTES: Final = 256 * 1024
"""Read in a thread at a time."""

_MOST_VALIDATOR: Final = 500
"""Characters of an ETag or a date that are kept."""

_UNCONDITIONAL: Final = {"Accept-Encoding": "gzip"}


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
    require_not_busy(answer, now, "it")
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
