"""One request at a time of each host, a gap between two, and a pause where one is needed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Final

MOST_HOSTS: Final = 10_000
"""Remembered; of more, those whose gap is over are forgotten."""


@dataclass(slots=True)
class _Host:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    free_at: float = 0.0
    paused_until: float = 0.0


class Politeness:
    """Lets requests through. Times are seconds of a clock that nobody sets."""

    def __init__(self, gap_seconds: float) -> None:
        self._gap_seconds = gap_seconds
        self._hosts: dict[str, _Host] = {}

    @contextlib.asynccontextmanager
    async def turn(self, name: str, crawl_delay: float) -> AsyncIterator[None]:
        """Ask a host something within this; `crawl_delay` is what its robots.txt wants, seconds."""
        host = self._host(name)
        async with host.turn:
            await asyncio.sleep(max(host.free_at - time.monotonic(), 0.0))
            try:
                yield
            finally:
                gap = max(self._gap_seconds, crawl_delay)
                host.free_at = max(host.free_at, time.monotonic() + gap)

    def busy(self) -> list[str]:
        """Hosts that must not be asked now."""
        now = time.monotonic()
        return [name for name, host in self._hosts.items() if _is_busy(host, now)]

    def pause(self, name: str, seconds: float) -> None:
        """Leave a host alone, as it asks for that or is away: it is busy for so long."""
        host = self._host(name)
        host.paused_until = max(host.paused_until, time.monotonic() + seconds)

    def _host(self, name: str) -> _Host:
        if len(self._hosts) >= MOST_HOSTS and name not in self._hosts:
            now = time.monotonic()
            self._hosts = {
                known: host for known, host in self._hosts.items() if _is_busy(host, now)
            }
        return self._hosts.setdefault(name, _Host())


def _is_busy(host: _Host, now: float) -> bool:
    return host.turn.locked() or max(host.free_at, host.paused_until) > now
