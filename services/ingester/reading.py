"""Reading `signals`. The ingester has no database, so its positions are kept in Kafka."""

from typing import Final

from shared.contracts.topics import SIGNALS
from shared.runtime.group_reading import GroupReader, Handle
from shared.runtime.settings import Settings

GROUP: Final = "freshet-ingester"

GATHERED_SECONDS: Final = 0.05
"""Signals are gathered for so long: a batch costs as much as some hundred of them, on three topics
and in what the group commits."""


class SignalReader(GroupReader):
    """Hands batches of `signals` to a callback and commits each when it is done."""

    def __init__(self, settings: Settings, handle: Handle) -> None:
        super().__init__(settings, GROUP, (SIGNALS,), handle, GATHERED_SECONDS)
