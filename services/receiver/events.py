"""CloudEvents over HTTP, <https://cloudevents.io>: structured, batched, and binary. Pure.

The page is the event's `subject` where that is a URL; else `url` of its data, if that is an object.
`time` says when it changed. Data that is JSON may come in base64.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final
from urllib.parse import unquote

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat

from services.receiver.lines import Read, checked_ping
from services.receiver.refusing import Refused
from services.receiver.texts import trimmed
from shared.contracts.fields import MAX_UNIX_SECONDS
from shared.contracts.identity import BadUrl
from shared.runtime.signal_bounds import SignalBounds

MOST_EVENTS: Final = 1_000
BATCH: Final = "application/cloudevents-batch+json"
STRUCTURED: Final = "application/cloudevents+json"
_FORMAT: Final = JSONFormat()
_FAULTS: Final = (
    *(BaseCloudEventException, ValueError, TypeError, KeyError, AttributeError),
    *(RecursionError, OverflowError),
)
"""What the SDK raises of hostile events, and what is raised here."""


def read_events(
    content_type: str, headers: Mapping[str, str], body: bytes, bounds: SignalBounds, now: float
) -> Read:
    """Pings from events; a bad one does not keep the others out.

    Args:
        content_type: of the request.
        headers: of the request, which may be an event's attributes.
        body: of the request.
        bounds: of times and hosts.
        now: Unix seconds.

    Raises:
        Refused: the body is not what its content type says, or has too many events.
    """
    kind = content_type.partition(";")[0].strip().lower()
    read = Read()
    for number, said in enumerate(_said(kind, headers, body), 1):
        try:
            message, observed_at = _taken_apart(said)
            url = _page_of(from_http(message, _FORMAT))
            read.pings.append(checked_ping(url, observed_at, bounds, now))
        except _FAULTS as error:
            read.refuse(f"event {number}", str(error))
    return read


def _said(kind: str, headers: Mapping[str, str], body: bytes) -> list[Any]:
    """Events, each to be looked at by itself: in binary form a message, else as JSON has them."""
    if kind == BATCH:
        return _batch(body)
    if kind == STRUCTURED:
        return [_json(body)]
    kept = {name.lower(): value for name, value in headers.items()}
    kept = {n: v for n, v in kept.items() if n.startswith("ce-") or n == "content-type"}
    if "ce-specversion" not in kept:
        raise Refused(415, f"send {STRUCTURED}, {BATCH}, or an event's attributes as ce- headers")
    return [HTTPMessage(kept, body)]


def _taken_apart(said: Any) -> tuple[HTTPMessage, float | None]:
    """An event without its time, for the SDK, and that time (Unix seconds; None: it says none).

    Of times that are none the SDK says nothing that helps, and it makes one up where none is said.

    Raises:
        TypeError: it is no event.
        ValueError: its time is none.
    """
    if isinstance(said, HTTPMessage):
        written = said.headers.pop("ce-time", None)
        return said, None if written is None else _seconds(unquote(written))
    if not isinstance(said, dict):
        raise TypeError("an event is a JSON object")
    # As the JSON format has it: an attribute that is null is one that is left out.
    event = {name: value for name, value in said.items() if value is not None}
    observed_at = _seconds(event.pop("time")) if "time" in event else None
    return HTTPMessage({"content-type": STRUCTURED}, json.dumps(event).encode()), observed_at


def _seconds(written: Any) -> float:
    """Unix seconds of a time as an event has it.

    Raises:
        ValueError: it is none.
    """
    try:
        # RFC 3339 has a small z as well, Python's reader has not.
        at: datetime | None = datetime.fromisoformat(written.upper())
    except (AttributeError, ValueError):
        at = None
    if at is None or at.tzinfo is None:
        raise ValueError("`time` must be an RFC 3339 text, like 2026-05-01T12:00:00Z")
    seconds = at.timestamp()
    if not 0 <= seconds <= MAX_UNIX_SECONDS:
        raise ValueError("its time is not of this age")
    return seconds


def _batch(body: bytes) -> list[Any]:
    events = _json(body)
    if not isinstance(events, list):
        raise Refused(400, "a batch is a JSON array of events")
    if len(events) > MOST_EVENTS:
        raise Refused(413, f"{len(events)} events; at most {MOST_EVENTS} are taken")
    return events


def _json(body: bytes) -> Any:
    try:
        return json.loads(trimmed(body))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"not JSON: {error}") from error


def _page_of(event: BaseCloudEvent) -> str:
    """The URL that an event names.

    Raises:
        BadUrl: it names none.
    """
    subject = event.get_subject()
    url = subject if subject and "://" in subject else _url_in(event)
    if url is None:
        raise BadUrl("it names no page: a URL as its subject, or as `url` in its data")
    return url


def _url_in(event: BaseCloudEvent) -> str | None:
    """`url` of an event's data."""
    data, kind = event.get_data(), event.get_datacontenttype() or JSONFormat.DEFAULT_CONTENT_TYPE
    if isinstance(data, bytes) and JSONFormat.JSON_CONTENT_TYPE_PATTERN.match(kind):
        # The SDK unpacks base64, and leaves it at that.
        data = json.loads(data)
    url = data.get("url") if isinstance(data, dict) else None
    return url if isinstance(url, str) else None
