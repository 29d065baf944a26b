"""The characters of a sitemap as UTF-8, in whichever encoding it is. Pure.

What cannot be read becomes U+FFFD: one entry is lost by it, and not the file.
"""

import codecs
from typing import Protocol

from services.poller.sites.entries import BadDocument, Summary
from shared.discovery.encodings import UnknownEncoding, encoding_of
from shared.discovery.surrogates import Mender


class Reader(Protocol):
    """Reads entries of a document as it comes."""

    def feed(self, part: bytes) -> None:
        """Take the next bytes."""
        ...

    def close(self) -> Summary:
        """The end was reached."""
        ...


class Decoder:
    """Bytes in, UTF-8 out, without the mark in front of it."""

    def __init__(self, head: bytes) -> None:
        """Make it.

        Args:
            head: the document's first bytes: they say the encoding, or it is UTF-8.

        Raises:
            BadDocument: they name one that nobody knows.
        """
        try:
            encoding = encoding_of(head)
        except UnknownEncoding as error:
            raise BadDocument(f"not well-formed XML: {error}") from error
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")

    def decode(self, part: bytes, *, is_last: bool = False) -> bytes:
        """The next bytes; characters that end in later ones come with these."""
        return self._decoder.decode(part, is_last).encode("utf-8", "replace")


class Decoded:
    """Hands a document on as UTF-8, with whole characters for halves that are references."""

    def __init__(self, reader: Reader, decoder: Decoder) -> None:
        """Make it.

        Args:
            reader: gets it.
            decoder: has decoded what was fed before, if anything was.
        """
        self._reader, self._decoder, self._mender = reader, decoder, Mender()

    def feed_decoded(self, part: bytes) -> None:
        """Take what is UTF-8 by now; as `feed`."""
        self._reader.feed(self._mender.mend(part))

    def feed(self, part: bytes) -> None:
        """Take the next bytes.

        Raises:
            BadDocument: says why.
        """
        self.feed_decoded(self._decoder.decode(part))

    def close(self) -> Summary:
        """The end was reached.

        Raises:
            BadDocument: says why.
        """
        self._reader.feed(self._mender.mend(self._decoder.decode(b"", is_last=True), is_last=True))
        return self._reader.close()
