"""What events of streams say of pages. Pure.

- `wikimedia`: `recentchange` and `mediawiki.page_change`, whose schemas are on
  <https://schema.wikimedia.org>. Canary events are left out; edits of bots are told apart.
- `jetstream`: posts of ATProto, as Bluesky's Jetstream has them.
- `json`: any JSON objects; the operator says where the page, the time and the cursor stand.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import Struct

from shared.contracts.fields import MAX_UNIX_SECONDS
from shared.contracts.identity import BadUrl, identify
from shared.runtime.pings import Ping

_CANARY: Final = "canary"
_CHANGES: Final = ("edit", "new")
"""Kinds of recent changes that change their page."""

_HIDDEN: Final = "visibility_change"
_PLACE: Final = re.compile(r"\{([A-Za-z0-9_.$-]+)\}")


@dataclass(frozen=True, slots=True)
class Said:
    """What an event says."""

    ping: Ping | None
    """None: of no page that has changed."""
    by_bot: bool = False
    cursor: str = ""
    """Of streams whose events have no ids: where a reader goes on."""


Reader = Callable[[Any], Said]


class Mapping(Struct, frozen=True):
    """Where `json` events have what is wanted; dots lead into objects."""

    page: str
    """A URL with places in braces: `https://example.com/{article.slug}`."""
    time: str = ""
    """Unix seconds, milliseconds or microseconds, or a date as RFC 3339 has it."""
    cursor: str = ""


JETSTREAM: Final = Mapping(
    "https://bsky.app/profile/{did}/post/{commit.rkey}", "time_us", "time_us"
)
_POSTS: Final = "app.bsky.feed.post"


def wikimedia(event: Any) -> Said:
    """A recent change, or a page change.

    Raises:
        ValueError: it is neither.
    """
    meta = _object(event, "meta")
    if meta.get("domain") == _CANARY:
        return Said(None)
    kind = event.get("page_change_kind")
    if kind is not None:
        changed = kind != _HIDDEN
        performer = event.get("performer")
        by_bot = isinstance(performer, dict) and performer.get("is_bot") is True
    else:
        changed = event.get("type") in _CHANGES
        by_bot = event.get("bot") is True
    if not changed:
        return Said(None)
    return Said(_ping(meta.get("uri"), meta.get("dt")), by_bot)


def mapped(mapping: Mapping, wanted: Callable[[Any], bool] | None = None) -> Reader:
    """The reader of events that a mapping is about.

    Args:
        mapping: where they have what.
        wanted: whether an event is about a page; the cursor counts in any case. None: all are.
    """

    def read(event: Any) -> Said:
        said = _place(_found(event, mapping.cursor)) if mapping.cursor else ""
        if wanted is not None and not wanted(event):
            return Said(None, cursor=said)
        url = _PLACE.sub(lambda place: _text(event, place.group(1)), mapping.page)
        time = _found(event, mapping.time) if mapping.time else None
        return Said(_ping(url, time), cursor=said)

    return read


def place_reader(path: str) -> Callable[[bytes], str]:
    """What reads the place of an event by itself: nothing is made of the rest, however long it is.

    Args:
        path: as a mapping's; empty: events have no places.
    """
    raw = msgspec.Raw
    steps: list[msgspec.json.Decoder[Any]] = [
        msgspec.json.Decoder(
            msgspec.defstruct("_Step", [("found", raw, raw())], rename={"found": name})
        )
        for name in path.split(".")
        if path
    ]

    def read(data: bytes) -> str:
        found: Any = data if steps else b'""'
        try:
            for step in steps:
                found = step.decode(found).found
            return _place(msgspec.json.decode(found, type=str | int | float))
        except (msgspec.MsgspecError, RecursionError):
            return ""

    return read


def _place(found: Any) -> str:
    return str(found) if isinstance(found, str | int | float) else ""


def _is_post(event: Any) -> bool:
    commit = event.get("commit")
    return (
        event.get("kind") == "commit"
        and isinstance(commit, dict)
        and commit.get("collection") == _POSTS
    )


def read_event(reader: Reader, data: bytes) -> Said:
    """What an event says.

    Raises:
        ValueError: it is not what its stream's format has; the text says why.
    """
    try:
        event = msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not JSON: {error}") from error
    if not isinstance(event, dict):
        raise ValueError("not a JSON object")  # noqa: TRY004 - a fault of the text
    return reader(event)


READERS: Final[dict[str, Reader]] = {
    "wikimedia": wikimedia,
    "jetstream": mapped(JETSTREAM, _is_post),
}


def _ping(url: Any, time: Any) -> Ping:
    if not isinstance(url, str):
        raise BadUrl("it names no page")
    page = identify(url)
    return Ping(page.url, page.host, _seconds(time))


def _seconds(time: Any) -> float | None:
    """Unix seconds, whatever the unit: those of this age differ by a thousand each. None: it cannot
    be read, and the page that has changed counts all the same."""
    if isinstance(time, str):
        try:
            at = datetime.fromisoformat(time)
            seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            return None
    elif isinstance(time, bool) or not isinstance(time, int | float):
        return None
    else:
        try:
            seconds = float(time)
        except OverflowError:
            # JSON's whole numbers have any number of digits.
            return None
        while seconds > MAX_UNIX_SECONDS:
            seconds /= 1000.0
    return seconds if 0 <= seconds <= MAX_UNIX_SECONDS else None


def _object(event: Any, name: str) -> dict[str, Any]:
    found = event.get(name)
    if not isinstance(found, dict):
        raise ValueError(f"it has no `{name}`")  # noqa: TRY004 - a fault of the text
    return found


def _found(event: Any, path: str) -> Any:
    for part in path.split("."):
        event = event.get(part) if isinstance(event, dict) else None
    return event


def _text(event: Any, path: str) -> str:
    found = _found(event, path)
    if isinstance(found, bool) or not isinstance(found, str | int):
        raise ValueError(f"it has no `{path}`")  # noqa: TRY004 - a fault of the text
    return str(found)
