"""CloudEvents over HTTP, <https://cloudevents.io>: structured, batched, and binary. Pure.

The page is the event's `subject` where that is a URL; else `url` of its data, if that is an object.
`time` says when it changed. Data that is JSON may come in base64.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.http import HTTPMessage, from_http
from cloudevents.core.exceptions import BaseCloudEventException
from cloudevents.core.formats.json import JSONFormat

from services.receiver.lines import Read
from services.receiver.refusing import Refused
from services.receiver.texts import trimmed
from shared.contracts.fields import MAX_UNIX_SECONDS
from shared.contracts.identity import BadUrl, identify
from shared.runtime.pings import Ping

MOST_EVENTS: Final = 1_000
BATCH: Final = "application/cloudevents-batch+json"
STRUCTURED: Final = "application/cloudevents+json"
_FORMAT: Final = JSONFormat()
_FAULTS: Final = (
    *(BaseCloudEventException, BadUrl, ValueError, TypeError, KeyError, AttributeError),
    *(RecursionError, OverflowError),
)
"""What the SDK raises of hostile events."""


def read_events(content_type: str, headers: Mapping[str, str], body: bytes) -> Read:
    """Pings from events; a bad one does not keep the others out.

    Raises:
        Refused: the body is not what its content type says, or has too many events.
    """
    kind = content_type.partition(";")[0].strip().lower()
    read = Read()
    for number, message in enumerate(_messages(kind, headers, body), 1):
        try:
            read.pings.append(ping_of(from_http(message.http, _FORMAT), timed=message.timed))
        except _FAULTS as error:
            read.refuse(f"event {number}", str(error))
    return read


class _Message(NamedTuple):
    http: HTTPMessage
    timed: bool
    """Whether the event says its time; where it does not, the SDK makes one up."""


def _messages(kind: str, headers: Mapping[str, str], body: bytes) -> list[_Message]:
    if kind == BATCH:
        return [_structured(event) for event in _batch(body)]
    if kind == STRUCTURED:
        try:
            return [_structured(json.loads(trimmed(body)))]
        except (ValueError, RecursionError):
            # The SDK says what is wrong.
            return [_Message(HTTPMessage({"content-type": STRUCTURED}, body), timed=False)]
    kept = {name.lower(): value for name, value in headers.items()}
    kept = {n: v for n, v in kept.items() if n.startswith("ce-") or n == "content-type"}
    if "ce-specversion" not in kept:
        raise Refused(415, f"send {STRUCTURED}, {BATCH}, or an event's attributes as ce- headers")
    return [_Message(HTTPMessage(kept, body), "ce-time" in kept)]


def _structured(event: Any) -> _Message:
    if isinstance(event, dict):
        # As the JSON format has it: an attribute that is null is one that is left out.
        event = {name: value for name, value in event.items() if value is not None}
    timed = isinstance(event, dict) and "time" in event
    return _Message(HTTPMessage({"content-type": STRUCTURED}, json.dumps(event).encode()), timed)


def _batch(body: bytes) -> list[Any]:
    try:
        events = json.loads(trimmed(body))
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"not JSON: {error}") from error
    if not isinstance(events, list):
        raise Refused(400, "a batch is a JSON array of events")
    if len(events) > MOST_EVENTS:
        raise Refused(413, f"{len(events)} events; at most {MOST_EVENTS} are taken")
    return events


def ping_of(event: BaseCloudEvent, *, timed: bool) -> Ping:
    """What an event says of a page.

    Args:
        event: as the SDK reads it.
        timed: whether its time is its own.

    Raises:
        BadUrl: it names none.
    """
    subject, at = event.get_subject(), event.get_time()
    url = subject if subject and "://" in subject else _url_in(event)
    if url is None:
        raise BadUrl("it names no page: a URL as its subject, or as `url` in its data")
    observed_at = at.timestamp() if at is not None and timed else None
    if observed_at is not None and not 0 <= observed_at <= MAX_UNIX_SECONDS:
        raise BadUrl("its time is not of this age")
    page = identify(url)
    return Ping(page.url, page.host, observed_at)


def _url_in(event: BaseCloudEvent) -> str | None:
    """`url` of an event's data."""
    data, kind = event.get_data(), event.get_datacontenttype() or JSONFormat.DEFAULT_CONTENT_TYPE
    if isinstance(data, bytes) and JSONFormat.JSON_CONTENT_TYPE_PATTERN.match(kind):
        # The SDK unpacks base64, and leaves it at that.
        data = json.loads(data)
    url = data.get("url") if isinstance(data, dict) else None
    return url if isinstance(url, str) else None
