"""The frontier's process."""

from collections.abc import Coroutine
from typing import Any

from services.frontier.book import Book
from services.frontier.discoveries import Discoveries
from services.frontier.giving import Giving
from services.frontier.hosts import Hosts
from services.frontier.looking import Looking
from services.frontier.names import Names
from services.frontier.putting import Putting
from services.frontier.reading import RequestReader
from services.frontier.sending import Sender
from services.frontier.server import Server
from services.frontier.service import Service
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.runtime.web import listening
from shared.runtime.worker import WorkerService, check_ports, make_app, run_app

NAME = "frontier"


class Frontier(WorkerService):
    """Hands out `crawl-requests` over gRPC, writes `crawl-outcomes`."""

    database_user = NAME

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        check_ports(settings, NAME, "frontier_port")
        self._publisher = Publisher(settings)
        self._sender = Sender(self._publisher, lambda: self.broker.trouble)
        self._book = Book(settings.frontier_max_requests)
        self._reader: RequestReader | None = None
        self._discoveries = Discoveries(settings, self._sender, self.clock)
        self._server = self._make_server()
        self._is_open = False

    def _make_server(self) -> Server:
        settings, clock = self.settings, self.clock
        host = settings.http_host
        address = f"{f'[{host}]' if ':' in host else host}:{settings.frontier_port}"
        names = Names(settings.frontier_crawl_id, self._book.knows)
        service = Service(
            address,
            Giving(self._book, names, clock),
            Putting(self._book, self._sender, self._discoveries, names, clock),
            Hosts(self._book, self._sender, names, clock),
            Looking(settings, self._book, names, clock),
            names,
            self.stopping,
        )
        return Server(
            service.methods(),
            address,
            settings.frontier_calls,
            settings.frontier_max_message_bytes,
        )

    async def open(self) -> None:
        """Connect, then let the first call in."""
        await self._publisher.start()
        # Clients of Kafka belong to the loop that they are made in.
        self._reader = RequestReader(self.settings, self._book, self.clock)
        await self._reader.start()
        with listening(self.settings.http_host, self.settings.frontier_port, "frontier_port"):
            await self._server.open()
        self._is_open = True

    async def close(self) -> None:
        """Answer what is under way, commit, and disconnect."""
        self._is_open = False
        await self._server.close()
        await self._sender.stop()
        self._discoveries.stop()
        if self._reader is not None:
            await self._reader.stop()
        await self._publisher.stop()

    def take_settings(self, settings: Settings) -> None:
        """The rules of discovered URLs."""
        super().take_settings(settings)
        self._discoveries.take_settings(settings)

    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """Calls come by themselves; requests are read for them."""
        return [self._read()]

    async def _read(self) -> None:
        if self._reader is None:
            raise RuntimeError("the frontier is not open")
        await self._reader.run(self.stopping)

    def not_ready(self) -> str | None:
        """Wait for the broker."""
        return None if self._is_open else "it does not listen yet"

    def progressed_at(self) -> float:
        """Wall time of the loop's last turn."""
        return self._reader.progressed_at if self._reader is not None else float("-inf")


def main() -> None:
    """Run the frontier until it is told to stop."""
    settings = load_settings()
    run_app(NAME, make_app(NAME, Frontier(settings)), settings)
