"""Which streams are read, as the operator says: `FRESHET_POLLER_STREAMS`."""

from typing import Literal

import msgspec
from msgspec import Struct

from services.poller.formats import JETSTREAM, READERS, Mapping, Reader, mapped
from shared.runtime.settings import Settings, SettingsError
from shared.runtime.shown_urls import shown


class Stream(Struct, frozen=True, forbid_unknown_fields=True):
    """One stream."""

    url: str
    """http and https: Server-Sent Events; ws and wss: JSON over a WebSocket."""
    source: str
    """Of its signals; those of bots are of the source with `-bots` after it."""
    format: Literal["wikimedia", "jetstream", "json"]
    page: str = ""
    """Of `json`: see `services.poller.formats.Mapping`, as the next two."""
    time: str = ""
    cursor: str = ""
    cursor_query: str = "cursor"
    """Of WebSockets: the query parameter by which a reader says where it goes on."""

    @property
    def is_websocket(self) -> bool:
        """Whether it is JSON over a WebSocket."""
        return self.url.startswith(("ws://", "wss://"))

    @property
    def place(self) -> str:
        """Where its events say how far one has read; empty: nowhere."""
        return {"wikimedia": "", "jetstream": JETSTREAM.cursor}.get(self.format, self.cursor)

    def reader(self) -> Reader:
        """What reads its events."""
        known = READERS.get(self.format)
        return known or mapped(Mapping(self.page, self.time, self.cursor))


def streams_of(settings: Settings) -> list[Stream]:
    """The streams of the settings.

    Raises:
        SettingsError: says what is wrong.
    """
    try:
        streams = msgspec.convert(list(settings.poller_streams), list[Stream])
    except msgspec.ValidationError as error:
        raise SettingsError(f"FRESHET_POLLER_STREAMS: {error}") from error
    for stream in streams:
        if not stream.url.startswith(("http://", "https://", "ws://", "wss://")):
            raise SettingsError(f"FRESHET_POLLER_STREAMS: {shown(stream.url)!r} is no stream's URL")
        if stream.format == "json" and not stream.page:
            raise SettingsError("FRESHET_POLLER_STREAMS: the format json needs `page`")
    if len({stream.source for stream in streams}) < len(streams):
        raise SettingsError("FRESHET_POLLER_STREAMS: each stream needs a source of its own")
    return streams
