"""Whether a broker answers: asked for every few seconds, past consumers and producers.

Those try again for ever by themselves, and do not say that they do; nor that a broker is there and
lets them in no more, as somebody has changed the password.
"""

import asyncio
import contextlib
import time
from typing import Any, Final

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from shared.contracts.topics import BANDWIDTH
from shared.runtime import metrics
from shared.runtime.access import AccessRefused, check_access
from shared.runtime.kafka import client_options
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
"""A broker that takes longer is away."""

WHY_SECONDS: Final = 2.0
"""One that does not say sooner why it lets nobody in is away, too."""

_AWAY: Final = "no broker answers: nothing is read or written until one does"


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
        options = client_options(self._settings)
        client = AIOKafkaClient(**options, request_timeout_ms=int(ANSWER_SECONDS * 1000))
        connected = False
        try:
            while not stopping.is_set():
                connected = connected or await self._connects(client)
                answers = connected and await _answers(client)
                self._note(None if answers else await self._why_not(options))
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

    async def _why_not(self, options: dict[str, Any]) -> str:
        """What keeps brokers from answering."""
        try:
            async with asyncio.timeout(WHY_SECONDS):
                await check_access(self._settings, options)
        except AccessRefused as refused:
            if refused.certain:
                return f"brokers do not let this worker in: {refused}"
        except TimeoutError:
            pass
        return _AWAY

    def _note(self, trouble: str | None) -> None:
        """Note what keeps brokers from answering; None: one has answered."""
        metrics.BROKER_AWAY.set(trouble is not None)
        if trouble is not None or self.trouble is not None:
            self.away_at = time.monotonic()
        if trouble is None and self.trouble is not None:
            log.info("the broker answers again")
        elif trouble is not None and trouble != self.trouble:
            log.warning("no broker answers: waiting for it", reason=trouble)
        self.trouble = trouble


async def _answers(client: AIOKafkaClient) -> bool:
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            return bool(await client.force_metadata_update())
    except TimeoutError:
        return False
