"""Where the ready spider puts what it fetches."""

import hashlib
import json
import os
import time
from datetime import UTC, datetime
from io import BytesIO, FileIO
from pathlib import Path
from typing import Final, Protocol

from scrapy.http import Response

MOST_WARC_BYTES: Final = 1 << 30
"""A WARC file that has grown so large is closed, and another one begun."""

_UNFINISHED: Final = ".open"
_OF_THE_TRANSFER: Final = {b"content-length", b"transfer-encoding"}
"""Headers that are not true of a body that was unpacked."""


class Store(Protocol):
    """A place for pages."""

    def put(self, page: str, response: Response) -> None:
        """Keep a page; when it returns, the operating system has it.

        Args:
            page: its URL, as Freshet names it.
            response: the last one, after redirects.

        Raises:
            OSError: there is no room, or no right.
        """

    def close(self) -> None:
        """Finish what is written."""


def body_file(folder: Path, page: str) -> Path:
    """The file that holds a page's newest copy; beside it stands a `.json` about it."""
    name = hashlib.sha256(page.encode()).hexdigest()
    return folder / name[:2] / name


class Files:
    """The newest copy of each page, in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, page: str, response: Response) -> None:
        """See `Store`. A reader never sees half a page."""
        file = body_file(self._folder, page)
        file.parent.mkdir(parents=True, exist_ok=True)
        about = {
            "url": page,
            "final_url": response.url,
            "status": response.status,
            "content_type": (response.headers.get(b"Content-Type") or b"").decode("latin-1"),
            "fetched_at": time.time(),
        }
        _replace(file, response.body)
        _replace(file.with_suffix(".json"), json.dumps(about).encode())

    def close(self) -> None:
        """See `Store`."""


class Warc:
    """All copies of all pages, in the order in which they came, as WARC files (ISO 28500).

    A file has the suffix `.open` until it is complete. It has whole records alone, also where the
    disk was full amid one.
    """

    def __init__(self, folder: Path, most_bytes: int = MOST_WARC_BYTES) -> None:
        """Write into a folder.

        Raises:
            ImportError: warcio is not installed: from a checkout,
                `pip install './clients/scrapy-freshet[warc]'`.
        """
        from warcio.warcwriter import WARCWriter  # noqa: PLC0415 - an extra

        self._make_writer = WARCWriter
        self._folder = folder
        self._most_bytes = most_bytes
        self._number = 0
        self._path = folder
        """Of the file."""
        self._file: FileIO | None = None
        """Without a buffer: what is in one would be written behind a record that was cut off."""

    def put(self, page: str, response: Response) -> None:
        """See `Store`. Bodies are written unpacked, with a length that fits them."""
        if self._file is None:
            self._file = self._begin()
        self._append(self._file, self._packed(page, response, is_first=self._file.tell() == 0))
        if self._file.tell() >= self._most_bytes:
            self.close()

    def close(self) -> None:
        """See `Store`."""
        if self._file is None:
            return
        with self._file as file:
            self._file, is_empty = None, file.tell() == 0
        if is_empty:
            self._path.unlink()
        else:
            self._path.rename(self._path.with_suffix(""))

    def _begin(self) -> FileIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._number += 1
        moment = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
        name = f"freshet-{moment}-{os.getpid()}-{self._number:05}.warc.gz"
        self._path = self._folder / (name + _UNFINISHED)
        return self._path.open("xb", buffering=0)

    def _packed(self, page: str, response: Response, *, is_first: bool) -> memoryview:
        """The record of a page; of a file's first one with the record before it, about the file."""
        from warcio.statusandheaders import StatusAndHeaders  # noqa: PLC0415 - an extra

        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, values in response.headers.items()
            if name.lower() not in _OF_THE_TRANSFER
            for value in values
        ]
        headers.append(("Content-Length", str(len(response.body))))
        about = {"WARC-Date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")}
        if response.ip_address is not None:
            about["WARC-IP-Address"] = str(response.ip_address)
        if response.url != page:
            about["Freshet-Page"] = page
        packed = BytesIO()
        writer = self._make_writer(packed, gzip=True)
        if is_first:
            software = {"software": "scrapy-freshet"}
            writer.write_record(writer.create_warcinfo_record(self._path.stem, software))
        record = writer.create_warc_record(
            response.url,
            "response",
            payload=BytesIO(response.body),
            length=len(response.body),
            http_headers=StatusAndHeaders(str(response.status), headers, protocol="HTTP/1.1"),
            warc_headers_dict=about,
        )
        writer.write_record(record)
        return packed.getbuffer()

    def _append(self, file: FileIO, content: memoryview) -> None:
        """Write content as a whole, or nothing of it."""
        began = file.tell()
        try:
            while content:
                content = content[file.write(content) :]
        except BaseException:
            try:
                file.seek(began)
                file.truncate()
            except OSError:
                # Nothing may come behind what is cut off: the next page begins another file.
                self._file = None
                file.close()
            raise


def _replace(file: Path, content: bytes) -> None:
    unfinished = file.with_name(file.name + _UNFINISHED)
    unfinished.write_bytes(content)
    unfinished.replace(file)
