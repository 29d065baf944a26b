"""A document as it comes: unpacked, looked at, and read by who can read it."""

import re
from typing import Final

import xxhash

from services.poller.sites.decoding import Decoded, Decoder
from services.poller.sites.entries import BadDocument, Give, Summary
from services.poller.sites.feed_process import FEED_BYTES, FeedProcess
from services.poller.sites.sitemaps import TOKEN_BYTES, SitemapReader, TextReader
from services.poller.sites.unpacking import Unpacker

DOCUMENT_BYTES: Final = 50 * 1024 * 1024 + 1024
"""Unpacked, as the protocol of sitemaps has it."""

_HEAD_BYTES: Final = 4096
"""Comments and blanks apart, the root begins within so many."""

_FILLING: Final = re.compile(rb"(?:\s|<!--.*?(?:-->|\Z))+", re.DOTALL)
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
        self._enough = _HEAD_BYTES
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
            self._begin(is_all=True)
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
        if not self._is_feed and len(self._held) >= self._enough:
            self._begin(is_all=False)
        if self._is_feed and len(self._held) > FEED_BYTES:
            raise BadDocument(f"the feed has more than {FEED_BYTES} bytes")

    def _begin(self, *, is_all: bool) -> None:
        """Find out what it is; where comments or blanks may hide it, once there is twice as much.

        Args:
            is_all: whether all has come.
        """
        decoder = Decoder(bytes(self._held[:_HEAD_BYTES]))
        # Whatever some plug-in has printed in front of the declaration.
        text = decoder.decode(bytes(self._held)).lstrip(_MARKS)
        begins = text[:1]
        plain = _FILLING.sub(b" ", text[:TOKEN_BYTES])[:_HEAD_BYTES] if begins == b"<" else b""
        root = _ROOT.search(plain)
        if begins in (b"", b"<") and root is None:
            if not is_all and len(plain) < _HEAD_BYTES and len(self._held) < TOKEN_BYTES:
                self._enough = 2 * len(self._held)
                return
            raise BadDocument("it is neither a sitemap nor a feed" if begins else "it is empty")
        if begins == b"{" or (root is not None and root[1] not in _SITEMAPS):
            self._is_feed = True
            return
        reader = SitemapReader(self._give) if begins == b"<" else TextReader(self._give)
        self._reader, self._held = Decoded(reader, decoder), bytearray()
        self._reader.feed_decoded(text)
