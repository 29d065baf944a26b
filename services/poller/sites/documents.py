"""A document as it comes: unpacked, looked at, and read by who can read it."""

import re
from typing import Final

import xxhash

from services.poller.sites.decoding import Decoded, Decoder
from services.poller.sites.entries import BadDocument, Give, Summary
from services.poller.sites.feed_process import FEED_BYTES, FeedProcess
from services.poller.sites.sitemaps import SitemapReader, TextReader
from services.poller.sites.unpacking import Unpacker

DOCUMENT_BYTES: Final = 50 * 1024 * 1024 + 1024
"""Unpacked, as the protocol of sitemaps has it."""

_HEAD_BYTES: Final = 4096
_MARKS: Final = b"\xef\xbb\xbf \t\r\n"
_ROOT: Final = re.compile(
    rb"<\s*(?:[\w.-]{1,40}:)?(urlset|sitemapindex|rss|feed|RDF|channel)[\s>/]"
)
_SITEMAPS: Final = (b"urlset", b"sitemapindex")


class Document:
    """Takes a document's bytes, and gives its entries."""

    def __init__(self, url: str, give: Give, feeds: FeedProcess) -> None:
        """Make it.

        Args:
            url: where it comes from; may be set anew until `close`, where a server leads elsewhere.
            give: called with each entry, from whatever thread feeds this.
            feeds: reads feeds.
        """
        self.url = url
        self._give = give
        self._feeds = feeds
        self._unpacker = Unpacker(DOCUMENT_BYTES)
        self._held = bytearray()
        self._reader: Decoded | None = None
        self._is_feed = False
        self._hash = xxhash.xxh3_128()

    def feed(self, part: bytes) -> None:
        """Take the next bytes, in a thread: a part may take tenths of a second.

        Raises:
            BadDocument: says why.
        """
        for unpacked in self._unpacker.feed(part):
            self._take(unpacked)

    def end(self) -> bytes:
        """All bytes have come; a digest of them, unpacked. In a thread.

        Raises:
            BadDocument: they are too few.
        """
        for unpacked in self._unpacker.close():
            self._take(unpacked)
        if self._reader is None and not self._is_feed:
            self._begin()
        return self._hash.digest()

    async def close(self) -> Summary:
        """Read what can only be read as a whole.

        Raises:
            BadDocument: says why.
        """
        if self._reader is not None:
            return self._reader.close()
        entries, summary = await self._feeds.read(self.url, bytes(self._held))
        for entry in entries:
            self._give(entry)
        return summary

    def _take(self, part: bytes) -> None:
        self._hash.update(part)
        if self._reader is not None:
            self._reader.feed(part)
            return
        self._held += part
        if not self._is_feed and len(self._held) >= _HEAD_BYTES:
            self._begin()
        if self._is_feed and len(self._held) > FEED_BYTES:
            raise BadDocument(f"the feed has more than {FEED_BYTES} bytes")

    def _begin(self) -> None:
        """Find out what it is."""
        decoder = Decoder(bytes(self._held[:_HEAD_BYTES]))
        # Whatever some plug-in has printed in front of the declaration.
        text = decoder.decode(bytes(self._held)).lstrip(_MARKS)
        begins = text[:1]
        if not begins:
            raise BadDocument("it is empty")
        root = _ROOT.search(text[:_HEAD_BYTES]) if begins == b"<" else None
        if begins == b"{" or (root is not None and root[1] not in _SITEMAPS):
            self._is_feed = True
            return
        if begins == b"<" and root is None:
            raise BadDocument("it is neither a sitemap nor a feed")
        reader = SitemapReader(self._give) if begins == b"<" else TextReader(self._give)
        self._reader, self._held = Decoded(reader, decoder), bytearray()
        self._reader.feed_decoded(text)
