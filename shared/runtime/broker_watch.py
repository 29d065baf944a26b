"""Whether a broker answers: asked for every few seconds, past consumers and producers.

Those try again for ever by themselves, and do not say that they do; nor that a broker is there and
lets them in no more, as somebody has changed the password.

All clients of a process ask at KAFKA_BOOTSTRAP_SERVERS once, and from then on the brokers that they
were told of, with the certificates and the password of their making. Where brokers have moved, or
what lets us in was renewed, newcomers get answers and we never will: such a process is begun anew.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, Final

import structlog
from aiokafka.client import AIOKafkaClient
from aiokafka.errors import KafkaError

from shared.contracts.topics import BANDWIDTH
from shared.runtime import metrics
from shared.runtime.access import AccessRefused, check_access
from shared.runtime.kafka import client_options
from shared.runtime.settings import Settings, SettingsError, load_settings

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 5.0
"""A broker that takes longer is away."""

WHY_SECONDS: Final = 2.0
"""One that does not say sooner why it lets nobody in is away, too. Of a newcomer's brokers each is
given as long, so that those which are up are found beside others that are not."""

STUCK_SECONDS: Final = 30.0
LEAST_TIMES: Final = 5
"""A process that newcomers outdo for so long, each of so many times running, is begun anew."""

_AWAY: Final = "no broker answers: nothing is read or written until one does"
_STUCK: Final = (
    "no broker answers this process, though one answers newcomers: it begins anew if that goes on"
)
_MOVED: Final = (
    "the brokers at KAFKA_BOOTSTRAP_SERVERS are no more where this process knew them: it ends "
    "itself to be restarted"
)
_RENEWED: Final = (
    "what lets this process in at the brokers was renewed, and they refuse what it began with: it "
    "ends itself to be restarted"
)


class Streak:
    """How often running, and since when, newcomers were answered and we were not. Pure."""

    def __init__(self) -> None:
        self._times = 0
        self._since = 0.0

    def note(self, now: float) -> bool:
        """Once more; whether that is enough."""
        if self._times == 0:
            self._since = now
        self._times += 1
        return self._times >= LEAST_TIMES and now - self._since >= STUCK_SECONDS

    def end(self) -> None:
        """Not this time."""
        self._times = 0


class BrokerWatch:
    """A small client of its own that asks about one topic."""

    def __init__(self, settings: Settings, begin_anew: Callable[[str], None] | None = None) -> None:
        """Ask nothing yet.

        Args:
            settings: of the process.
            begin_anew: told why this process must end; None: it waits on.
        """
        self._settings = settings
        self._begin_anew = begin_anew
        self._options: dict[str, Any] = {}
        """Those that this process began with."""
        self._client: AIOKafkaClient | None = None
        self._is_connected = False
        self._streak = Streak()
        self.topics_are_there = True
        """While they are not made yet nobody asks about one, which many a broker would make then,
        in its own way: who answers a newcomer answers."""
        self.trouble: str | None = None
        """Why nothing can be read or written now; None: a broker answers."""
        self.away_at = float("-inf")
        """Until when (monotonic) no broker answered: an absence ends with an answer.

        The last question may be seconds older than it, in which nobody could do anything.
        """

    async def run(self, stopping: asyncio.Event) -> None:
        """Ask until `stopping` is set."""
        try:
            while not stopping.is_set():
                await self.ask()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), ASK_SECONDS)
        finally:
            await self.close()

    async def ask(self) -> None:
        """Ask once, and note what came of it."""
        if self._client is None:
            self._options = client_options(self._settings)
            self._client = _client(self._options, ANSWER_SECONDS)
        is_connected = self._is_connected or await self._connects(self._client)
        self._is_connected = is_connected and self.topics_are_there
        if is_connected and await self._answers(self._client):
            self._streak.end()
            self._note(None)
        else:
            # The reasons take seconds, too: whoever looks meanwhile shall not find us silent.
            self.away_at = time.monotonic()
            self._note(await self._why_not())

    async def close(self) -> None:
        """Disconnect."""
        if self._client is not None:
            await self._client.close()

    async def _connects(self, client: AIOKafkaClient) -> bool:
        try:
            await client.bootstrap()
        except (KafkaError, OSError, TimeoutError):
            return False
        if self.topics_are_there:
            client.set_topics([self._settings.topic(BANDWIDTH.name)])
        return True

    async def _answers(self, client: AIOKafkaClient) -> bool:
        """Whether a broker answers a client that is connected, as one was a moment ago."""
        if not self.topics_are_there:
            return True
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                return bool(await client.force_metadata_update())
        except TimeoutError:
            return False

    async def _why_not(self) -> str:
        """What keeps brokers from answering; ends the process where waiting cannot help."""
        try:
            options = await asyncio.to_thread(_options_of_now, self._settings)
        except SettingsError as error:
            self._streak.end()
            return f"no broker answers, and nobody could come in anew: {error}"
        newcomer = await self._answered(options, WHY_SECONDS)
        if newcomer is None:
            self._streak.end()
            refused = await self._refused(options)
            if refused is not None and refused.certain:
                return f"brokers do not let this worker in: {refused}"
            return _AWAY if refused is None else f"{_AWAY}; {refused}"
        await newcomer.close()
        if self._streak.note(time.monotonic()):
            self._streak.end()
            await self._get_unstuck()
        return _STUCK

    async def _get_unstuck(self) -> None:
        """Begin anew, unless it is only our own connections that are dead without saying so.

        The process's other clients close such by themselves.
        """
        if (same := await self._answered_where_known()) is not None:
            hung, self._client, self._is_connected = self._client, same, True
            if hung is not None:
                await hung.close()
        elif self._begin_anew is not None:
            self._begin_anew(_RENEWED if await self._refused(self._options) else _MOVED)

    async def _answered_where_known(self) -> AIOKafkaClient | None:
        """A new client that knows what our other clients know; None: nobody answers it."""
        known = [] if self._client is None else self._client.cluster.brokers()
        hosts = [(f"[{b.host}]" if ":" in b.host else b.host, b.port) for b in known]
        if not hosts:
            return None
        servers = ",".join(f"{host}:{port}" for host, port in hosts)
        return await self._answered(self._options | {"bootstrap_servers": servers}, ANSWER_SECONDS)

    async def _answered(
        self, options: dict[str, Any], request_seconds: float
    ) -> AIOKafkaClient | None:
        """A new client that was answered by a broker; None: it was not."""
        client = _client(options, request_seconds)
        is_answered = False
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ANSWER_SECONDS):
                    is_answered = await self._connects(client) and await self._answers(client)
        finally:
            if not is_answered:
                await client.close()
        return client if is_answered else None

    async def _refused(self, options: dict[str, Any]) -> AccessRefused | None:
        """Why brokers let nobody in who comes with these options; None: they do, or are away."""
        try:
            async with asyncio.timeout(WHY_SECONDS):
                await check_access(self._settings, options)
        except AccessRefused as refused:
            return refused
        except TimeoutError:
            pass
        return None

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


def _client(options: dict[str, Any], request_seconds: float) -> AIOKafkaClient:
    return AIOKafkaClient(**options, request_timeout_ms=int(request_seconds * 1000))


def _options_of_now(settings: Settings) -> dict[str, Any]:
    """As a process that starts now would have them: certificates, user and password are read again.

    Raises:
        SettingsError: they cannot be; files that are being replaced may not fit for a moment.
    """
    if settings.kafka_sasl_password is not None:
        now = load_settings()
        password = now.kafka_sasl_password or settings.kafka_sasl_password
        user = now.kafka_sasl_username or settings.kafka_sasl_username
        renewed = {"kafka_sasl_username": user, "kafka_sasl_password": password}
        settings = settings.model_copy(update=renewed)
    return client_options(settings)
