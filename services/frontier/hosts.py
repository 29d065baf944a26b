"""BlockQueueUntil and SetDelay: rules of a host, which schedulers hold, and survive restarts."""

from typing import Final, Literal

import grpc
import structlog

from services.frontier.api.urlfrontier_pb2 import BlockQueueParams, QueueDelayParams
from services.frontier.book import Book
from services.frontier.names import Names
from services.frontier.refusing import NotStored, Refused
from services.frontier.sending import Sender
from shared.contracts.fields import MAX_UNIX_SECONDS
from shared.contracts.messages import HostLimit
from shared.contracts.topics import HOST_LIMITS
from shared.rules.host_rules import as_said
from shared.runtime.clock import Clock

log = structlog.get_logger(__name__)

MOST_DELAY_SECONDS = 10_000_000
"""Of `crawl_delay_seconds` in `host-limits`."""


KNOWN_SECONDS: Final = 10.0
"""Schedulers go by a block of a host within this (wall)."""


class Hosts:
    """Writes `host-limits`."""

    def __init__(self, book: Book, sender: Sender, names: Names, clock: Clock) -> None:
        self._book = book
        self._sender = sender
        self._names = names
        self._clock = clock

    async def block(self, request: BlockQueueParams) -> None:
        """Leave a host alone until a time; at 0 no longer: the operators' block of the host.

        Crawlers that heard a Retry-After tell it in the outcome, where it has a field of its own.
        """
        self._names.check_crawl(request.crawlID)
        host = self._names.host_of(request.key)
        if request.time > MAX_UNIX_SECONDS:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT, "the time is too late: it is in Unix seconds"
            )
        until = float(request.time)
        await self._send(host, "block", until=until or None)
        # What is read already is not handed out either.
        known_at = self._clock.now() + self._clock.span(KNOWN_SECONDS)
        self._book.block(host, until, known_at)

    async def delay(self, request: QueueDelayParams) -> None:
        """Let no two crawls of a host be nearer to each other: its robots.txt's crawl-delay."""
        self._names.check_crawl(request.crawlID)
        if not request.key:
            raise Refused(
                grpc.StatusCode.UNIMPLEMENTED,
                "the delay of all hosts is the operators': FRESHET_DEFAULT_HOST_CRAWLS_PER_SECOND",
            )
        host = self._names.host_of(request.key)
        if request.delay_requestable > MOST_DELAY_SECONDS:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"the delay is too long: at most {MOST_DELAY_SECONDS} seconds",
            )
        await self._send(host, "crawl-delay", delay=float(request.delay_requestable))

    async def _send(
        self,
        host: str,
        only: Literal["block", "crawl-delay"],
        *,
        until: float | None = None,
        delay: float | None = None,
    ) -> None:
        message = HostLimit(
            as_said(host), blocked_until=until, crawl_delay_seconds=delay, only=only
        )
        try:
            await self._sender.send(HOST_LIMITS, host, message)
        except NotStored as error:
            raise Refused(grpc.StatusCode.UNAVAILABLE, f"not stored: {error}; try again") from error
        log.info("a client has set a rule of a host", host=host, rule=only)
