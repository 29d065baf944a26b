"""Server-Sent Events, as they come over the wire (WHATWG HTML, section 9.2). Pure."""

import re
from dataclasses import dataclass
from typing import Final

MOST_BYTES: Final = 1024 * 1024
"""Of one event's data. Of a longer one only the id counts: where its server would send it again and
again, nothing that comes after it would ever be read."""

MOST_PASSED_OVER: Final = 64 * MOST_BYTES
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
    """Empty: it was too long."""
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
        self._passed_over = 0
        """Bytes of the event at hand that were left out; 0: it is not too long."""
        self._is_in_line = False
        """Whether what comes is of a line whose beginning was left out."""

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
            if self._is_in_line:
                self._is_in_line = False
            elif line:
                self._field(line)
            elif self._data or self._passed_over:
                data = b"" if self._passed_over else b"\n".join(self._data)
                events.append(ServerEvent(data, self._id))
                self._data, self._size, self._passed_over = [], 0, 0
        if self._is_in_line or len(self._rest) + self._size > MOST_BYTES:
            self._pass_over()
        return events

    def _pass_over(self) -> None:
        """Leave out what has come of an event that is too long."""
        self._passed_over += len(self._rest) + self._size
        if self._passed_over > MOST_PASSED_OVER:
            raise TooLong(f"an event has more than {MOST_PASSED_OVER} bytes")
        self._data, self._size = [], 0
        self._is_in_line = self._is_in_line or bool(self._rest)
        # It may be the first half of the line's end.
        self._rest = b"\r" if self._rest.endswith(b"\r") else b""

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data.append(value)
            self._size += len(value) + 1
        elif name == b"id" and b"\0" not in value:
            self._id = value.decode("utf-8", "replace")
