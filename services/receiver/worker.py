"""The receiver's process."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine
from typing import Any, Final

import psycopg
from aiohttp import web

from services.receiver.bodies import Bodies
from services.receiver.door import Door
from services.receiver.indexnow.engines import Engines
from services.receiver.indexnow.keys import KeyBook, key_fetcher
from services.receiver.pages import OWN_SOURCES, Pages, Parts, answered
from services.receiver.rates import Rates
from services.receiver.sending import Sender
from services.receiver.tokens import Tokens
from services.receiver.visitors import Proxies
from services.receiver.websub.pages import WEBSUB, HubPages
from services.receiver.websub.subscriber import Subscriber
from services.receiver.websub.subscriptions import Subscriptions
from shared.runtime.fetching import Fetcher
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, SettingsError, load_settings
from shared.runtime.stopping import until_stopped
from shared.runtime.web import listening
from shared.runtime.worker import WorkerService, check_ports, make_app, run_app
from shared.store.ping_accounts import write_pings
from shared.store.questions import take_turns
from shared.units import SECONDS_PER_DAY

NAME = "receiver"

BEAT_SECONDS: Final = 1.0
ACCOUNT_SECONDS: Final = 10.0
"""What sources have sent is written down so often; a receiver that is killed forgets as much."""

LAST_SECONDS: Final = 2.0
"""The end waits so long for a database to take the last of it."""

_HOUR_SECONDS: Final = 3600.0


class Receiver(WorkerService):
    """Takes pings over HTTP, writes `signals`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        check_ports(settings, NAME, "receiver_port")
        check_tokens(settings)
        self._publisher = Publisher(settings)
        self._fetcher = key_fetcher(allow_private=settings.allow_private_hosts)
        # Of its own: strangers who have keys looked for at slow hosts must not keep hubs waiting.
        self._hub_fetcher = Fetcher(allow_private=settings.allow_private_hosts)
        self._sender = Sender(settings, self._publisher, lambda: self.broker.trouble)
        self._keys = KeyBook(
            self._fetcher,
            settings.indexnow_recheck_hours * _HOUR_SECONDS,
            settings.indexnow_key_wait_seconds,
        )
        self._engines = Engines(self._hub_fetcher, settings.indexnow_engines)
        self._lease_seconds = settings.websub_lease_days * SECONDS_PER_DAY
        self._subscriptions = Subscriptions(settings.database_url.get_secret_value())
        self._subscriber = Subscriber(
            self._subscriptions, self._hub_fetcher, settings.receiver_url, self._lease_seconds
        )
        if settings.receiver_url:
            self.database_user = NAME
        self._rates = Rates(settings.receiver_urls_per_sender_per_second)
        self._tokens = Tokens(settings.receiver_tokens)
        self._door = self._make_door()
        self._is_open = False
        self._beat_at = time.monotonic()

    def _make_door(self) -> Door:
        settings = self.settings
        bodies = Bodies(settings.receiver_max_body_bytes)
        rates = self._rates
        proxies = Proxies(settings.receiver_trusted_proxies)
        parts = Parts(
            settings, self._sender, bodies, self._keys, self._engines, rates, self._tokens, proxies
        )
        application = web.Application(middlewares=[answered])
        application.add_routes(Pages(parts).routes())
        if settings.receiver_url:
            hubs = HubPages(
                self._subscriptions,
                self._sender,
                bodies,
                self._lease_seconds,
                settings.signal_max_age_days * SECONDS_PER_DAY,
                rates,
                proxies,
            )
            application.add_routes(hubs.routes())
        return Door(
            application,
            settings.http_host,
            settings.receiver_port,
            settings.receiver_connections,
            proxies,
        )

    async def open(self) -> None:
        """Connect, then let the first ping in."""
        await self._publisher.start()
        await self._fetcher.start()
        await self._hub_fetcher.start()
        with listening(self.settings.http_host, self.settings.receiver_port, "receiver_port"):
            await self._door.open()
        self._is_open = True

    async def close(self) -> None:
        """Answer what is under way, and disconnect."""
        self._is_open = False
        await self._door.close()
        await self._sender.stop()
        with contextlib.suppress(psycopg.Error, TimeoutError):
            await asyncio.wait_for(self._write_accounts(), LAST_SECONDS)
        await self._keys.stop()
        self._subscriptions.stop()
        await self._fetcher.stop()
        await self._hub_fetcher.stop()
        await self._publisher.stop()

    def take_settings(self, settings: Settings) -> None:
        """Tokens and the limit of senders.

        Raises:
            SettingsError: the tokens would let their holders speak for others.
        """
        check_tokens(settings)
        super().take_settings(settings)
        self._sender.take_settings(settings)
        self._tokens.replace(settings.receiver_tokens)
        self._rates.limit(settings.receiver_urls_per_sender_per_second)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Pings come by themselves; beside them, others are asked."""
        return [
            self._beat(),
            take_turns(
                self._write_accounts,
                ACCOUNT_SECONDS,
                "what sources have sent is not written down: the database is away",
                stopping=self.stopping,
            ),
            *(
                # They wait for strangers, and have nothing that must be finished.
                until_stopped(self.stopping, work)
                for work in (self._engines.run(), self._subscriber.run())
            ),
        ]

    async def _beat(self) -> None:
        """Show that the loop turns."""
        while not self.stopping.is_set():
            self._beat_at = time.monotonic()
            await asyncio.sleep(BEAT_SECONDS)

    async def _write_accounts(self) -> None:
        """Write down what sources have sent; what the database does not take is kept."""
        accounts = self._sender.accounts
        if not (news := accounts.taken()):
            return
        is_written = False
        try:
            await self._subscriptions.ask(write_pings, news)
            is_written = True
        finally:
            if not is_written:
                accounts.give_back(news)

    def not_ready(self) -> str | None:
        """Wait for the broker."""
        return None if self._is_open else "it does not listen yet"

    def progressed_at(self) -> float:
        """Wall time of the loop's last turn."""
        return self._beat_at


def check_tokens(settings: Settings) -> None:
    """Refuse tokens that would let their holders speak for others.

    Raises:
        SettingsError: says which.
    """
    taken = sorted((OWN_SOURCES | {WEBSUB}) & settings.receiver_tokens.keys())
    if taken:
        raise SettingsError(f"FRESHET_RECEIVER_TOKENS: the receiver's own sources: {taken}")
    tokens = [token.get_secret_value() for token in settings.receiver_tokens.values()]
    if len(set(tokens)) != len(tokens) or not all(tokens):
        raise SettingsError("FRESHET_RECEIVER_TOKENS: each source needs a token of its own")


def main() -> None:
    """Run the receiver until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Receiver(settings)), settings)
