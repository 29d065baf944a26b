"""What a client knows of topics: as many partitions as there were when it last asked."""

import zlib
from typing import Final

from services.verify.simulation.kafka.broker import Broker
from services.verify.simulation.process import current

ASKED_SECONDS: Final = 5.0
"""A client asks by itself so often; a minute in production."""


class Metadata:
    """The knowledge of one client, which belongs to the process that makes it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._asked_at = broker.loop.now
        turn = zlib.crc32(f"{current().name} {self._asked_at}".encode()) / 2**32
        self.lag = ASKED_SECONDS * turn
        """It learns of what is new so much later, unless it asks before; virtual seconds."""

    def ask(self) -> None:
        """Learn what there is now."""
        self._asked_at = self._broker.loop.now

    def count(self, topic: str) -> int:
        """How many partitions a topic has, as far as is known."""
        at = max(self._asked_at, self._broker.loop.now - self.lag)
        return self._broker.count_at(topic, at)
