"""Whether a broker answers: asked for every few seconds, past consumers and producers.

Those try again for ever by themselves, and do not say that they do.
"""

import asyncio
import contextlib
import time
from typing import Final

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from shared.contracts.topics import BANDWIDTH
from shared.runtime import metrics
from shared.runtime.kafka import client_options
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
"""A broker that takes longer is away."""


class BrokerWatch:
    """A small client of its own that asks about one topic."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.trouble: str | None = None
        """Why nothing can be read or written now; None: a broker answers."""
        self.away_at = float("-inf")
        """Until when (monotonic) no broker answered: an absence ends with an answer.

        The last question may be seconds older than it, in which nobody could do anything.
        """

    async def run(self, stopping: asyncio.Event) -> None:
        """Ask until `stopping` is set."""
        client = AIOKafkaClient(
            **client_options(self._settings), request_timeout_ms=int(ANSWER_SECONDS * 1000)
        )
        connected = False
        try:
            while not stopping.is_set():
                connected = connected or await self._connects(client)
                self._note(connected and await _answers(client))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), ASK_SECONDS)
        finally:
            await client.close()

    async def _connects(self, client: AIOKafkaClient) -> bool:
        try:
            await client.bootstrap()
        except (KafkaError, OSError, TimeoutError):
            return False
        client.set_topics([self._settings.topic(BANDWIDTH.name)])
        return True

    def _note(self, answers: bool) -> None:
        metrics.BROKER_AWAY.set(not answers)
        if not answers or self.trouble is not None:
            self.away_at = time.monotonic()
        if answers:
            if self.trouble is not None:
                log.info("the broker answers again")
            self.trouble = None
            return
        if self.trouble is None:
            log.warning("no broker answers: waiting for it")
            self.trouble = "no broker answers: nothing is read or written until one does"


async def _answers(client: AIOKafkaClient) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return bool(await client.force_metadata_update())
    except TimeoutError:
        return False
