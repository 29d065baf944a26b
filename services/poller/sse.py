"""Server-Sent Events, as they come over the wire (WHATWG HTML, section 9.2). Pure."""

import re
from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 1024 * 1024
"""Of one event: a server that sends more without an end is given up."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?=.)", re.DOTALL)
"""A carriage return at the end of what has come may be the first half of a pair."""

_MARK: Final = b"\xef\xbb\xbf"


class TooLong(ValueError):
    """The server sends an event without an end."""


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event."""

    data: bytes
    last_id: str
    """What a reader that comes again says: everything after it is sent."""


class EventParser:
    """Bytes in, whole events out, wherever the bytes are cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._begun = False
        self._data: list[bytes] = []
        self._size = 0
        self._id = ""

    def feed(self, part: bytes) -> list[ServerEvent]:
        """The events that these bytes complete.

        Raises:
            TooLong: an event has no end.
        """
        text = self._rest + part
        if not self._begun and len(text) >= len(_MARK):
            self._begun, text = True, text.removeprefix(_MARK)
        *lines, self._rest = _LINE_END.split(text)
        events = []
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                events.append(ServerEvent(b"\n".join(self._data), self._id))
                self._data, self._size = [], 0
        if len(self._rest) + self._size > MOST_BYTES:
            raise TooLong(f"an event has more than {MOST_BYTES} bytes")
        return events

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
