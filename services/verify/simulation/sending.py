"""Crawlers, pingers and operators as producers: what waits for the broker, and where it goes."""

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Final

from msgspec import Struct

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.kafka.broker import Broker, Given, Header, Partition
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import OUTSIDE
from services.verify.simulation.truth import Truth
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_UPDATES, Topic

UNHEARD_SECONDS: Final = (0.5, 9.0)
"""Who sends to a topic learns so late that it has got partitions, and has one view of it."""

_RETRY_SECONDS: Final = 0.1


class Sending:
    """Sends what people and crawlers say, in order."""

    def __init__(self, loop: VirtualLoop, broker: Broker, truth: Truth, seed: int) -> None:
        self.is_away: Callable[[], bool] = lambda: False
        """Whether the broker takes nothing now; what is sent then waits."""
        self._loop, self._broker, self._truth = loop, broker, truth
        self._waiting: deque[tuple[Partition, Callable[[], None]]] = deque()
        rng = Random(f"unheard {seed}")  # noqa: S311 - a simulation
        self._unheard = {
            topic.name: rng.uniform(*UNHEARD_SECONDS)
            for topic in (CRAWL_OUTCOMES, PAGE_UPDATES, HOST_LIMITS)
        }
        self._context = OUTSIDE.context()

    def send(self, topic: Topic, host: str, message: Struct) -> None:
        """Send a message to its host's partition, as far as the sender knows."""
        at = self._loop.now - self._unheard.get(topic.name, 0.0)
        partition = shard_of(host, self._broker.count_at(topic.name, at))
        self.append(topic, partition, host.encode(), encode(message))

    def append(
        self,
        topic: Topic,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[Header, ...] = (),
        *,
        is_bad: bool = False,
    ) -> None:
        """Send a record, once its partition takes it."""
        given = Given(key, value, int((BEGINNING + self._loop.now) * 1000), headers)
        log = self._broker.partition(topic.name, partition)

        def append() -> None:
            stored = self._broker.append(topic.name, partition, [given], 0)
            if is_bad:
                self._truth.bad.add((topic.name, partition, stored.offset))

        if self._is_closed(log) or any(other is log for other, _ in self._waiting):
            if not self._waiting:
                self._retry_later()
            self._waiting.append((log, append))
        else:
            append()

    def _retry_later(self) -> None:
        self._loop.call_later(_RETRY_SECONDS, self._send_waiting, context=self._context)

    def _is_closed(self, log: Partition) -> bool:
        return log.takes_nothing or self.is_away()

    def _send_waiting(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for log, append in waiting:
            if self._is_closed(log):
                self._waiting.append((log, append))
            else:
                append()
        if self._waiting:
            self._retry_later()
