"""The rest of the world outside: pings, new and removed pages, host limits."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from services.verify.crowd import Crowd
from services.verify.sending import Sender
from shared.contracts.identity import identify
from shared.contracts.messages import HostLimit, PageUpdate, Signal
from shared.contracts.topics import HOST_LIMITS, PAGE_UPDATES, SIGNALS
from shared.units import SECONDS_PER_DAY

TURN_SECONDS: Final = 0.02
UPDATE_SECONDS: Final = 0.7
"""Between two changes of the set of pages."""

KEPT_SECONDS: Final = 12.0
"""A page that was added stays at least so long."""


@dataclass(slots=True)
class Expected:
    """What the updates that were published make of pages."""

    added: dict[str, float] = field(default_factory=dict)
    """URL → when it was added; of pages that shall be there."""
    removed: dict[str, float] = field(default_factory=dict)
    """URL → when it was removed; of pages that shall not be crawled."""
    importance: dict[str, float] = field(default_factory=dict)
    """URL → as last set."""
    classes: dict[str, str] = field(default_factory=dict)
    """URL → the class that was last said of the page; empty: none."""


class Traffic:
    """Publishes signals when their time has come, and page updates now and then."""

    def __init__(
        self, crowd: Crowd, sender: Sender, seed: int, classes: Sequence[str] = ()
    ) -> None:
        """Make it.

        Args:
            crowd: the pages.
            sender: publishes.
            seed: of which pages are added, removed and changed.
            classes: of pages; none: no worker hears of such.
        """
        self.expected = Expected()
        self.signals = 0
        self.is_quiet = False
        """Nothing is sent any more."""
        self._crowd = crowd
        self._sender = sender
        self._origin = time.time()
        self._rng = np.random.default_rng([seed, 13])
        self._classes = ["", *classes]
        self._number = 0

    def limit_hosts(self) -> None:
        """Say how often each host may be crawled, and how many requests may be open."""
        for host, rate in self._crowd.limits.items():
            self._sender.queue(HOST_LIMITS, host, HostLimit(host, rate), on_time=True)

    async def limit_further(self) -> None:
        """Say what workers of 0.2 do not know: limits of groups, and bounds of open requests."""
        for host, most in self._crowd.open_bounds.items():
            bound = HostLimit(host, max_open_requests=most, only="open")
            self._sender.queue(HOST_LIMITS, host, bound, on_time=True)
        for group, rate in self._crowd.group_limits.items():
            await self._sender.limit_group(group, rate)

    async def run(self, origin: float) -> None:
        """Go on until cancelled; the web's days begin at `origin`, Unix seconds."""
        self._origin = origin
        update_at = time.monotonic() + UPDATE_SECONDS
        while True:
            if self.is_quiet:
                return
            self._send_signals()
            if time.monotonic() >= update_at:
                update_at += UPDATE_SECONDS
                self._update_a_page()
            await asyncio.sleep(TURN_SECONDS)

    def _send_signals(self) -> None:
        pages, stream = self._crowd.pages, self._crowd.stream
        found = stream.signals((time.time() - self._origin) / SECONDS_PER_DAY)
        sources = stream.source_names
        for day, page, source in zip(
            found.days.tolist(), found.pages.tolist(), found.sources.tolist(), strict=True
        ):
            observed_at = self._origin + day * SECONDS_PER_DAY
            message = Signal(pages.urls[page], sources[source], observed_at)
            self._sender.queue(SIGNALS, pages.hosts[page], message)
            self.signals += 1

    def _update_a_page(self) -> None:
        kind = self._rng.choice(
            ["add", "remove", "change", "remove unknown"], p=[0.4, 0.3, 0.2, 0.1]
        )
        now = time.time()
        if kind == "add":
            self._number += 1
            host = str(self._rng.choice(self._crowd.pages.hosts))
            url = f"https://{host}/added/{self._number}"
            self.expected.added[url] = now
            self.expected.importance[url] = 2.0
            self._publish(self._update_of(url, now))
        elif kind == "remove":
            old = [url for url, at in self.expected.added.items() if at < now - KEPT_SECONDS]
            if old:
                url = str(self._rng.choice(old))
                del self.expected.added[url]
                self.expected.removed[url] = now
                self._publish(PageUpdate("remove", url, updated_at=now))
        elif kind == "change":
            url = self._crowd.pages.urls[int(self._rng.integers(len(self._crowd.pages)))]
            self.expected.importance[url] = float(self._rng.integers(1, 50))
            self._publish(self._update_of(url, now))
        else:
            host = str(self._rng.choice(self._crowd.pages.hosts))
            self._publish(PageUpdate("remove", f"https://{host}/never-there", updated_at=now))

    def _update_of(self, url: str, now: float) -> PageUpdate:
        """Says how much a page matters; where there are classes, of which it is now."""
        importance = self.expected.importance[url]
        if len(self._classes) == 1:
            return PageUpdate("upsert", url, importance=importance, updated_at=now)
        name = str(self._rng.choice(self._classes))
        self.expected.classes[url] = name
        return PageUpdate(
            "upsert", url, importance=importance, page_class=name or None, updated_at=now
        )

    def _publish(self, update: PageUpdate) -> None:
        self._sender.queue(PAGE_UPDATES, identify(update.url).host, update)
