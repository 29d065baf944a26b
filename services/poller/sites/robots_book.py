"""What the robots.txt of each host says, remembered for a day."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection
from typing import Final

import structlog
from yarl import URL

from services.poller.sites.politeness import Politeness
from shared.discovery.robots import Robots, fetch_robots, robots_url
from shared.runtime.fetching import Fetcher, FetchFailed
from shared.units import SECONDS_PER_DAY

log = structlog.get_logger(__name__)

MOST_KNOWN: Final = 10_000


class RobotsBook:
    """Rules by host. In memory: who starts anew asks again."""

    def __init__(
        self, fetcher: Fetcher, politeness: Politeness, agent: str, fresh_seconds: float
    ) -> None:
        """Make it.

        Args:
            fetcher: started before the first question.
            politeness: of all requests.
            agent: who we say that we are.
            fresh_seconds: what was read is believed for so long, at most a day.
        """
        self._fetcher = fetcher
        self._politeness = politeness
        self._agent = agent
        self.fresh_seconds = min(fresh_seconds, SECONDS_PER_DAY)
        """What was read is believed for so long."""
        self._known: OrderedDict[str, tuple[Robots, float]] = OrderedDict()

    async def rules_of(self, url: str, *, anew: bool = False) -> Robots:
        """What holds for a URL.

        Raises:
            FetchFailed: it cannot be had, and never was, so nothing is allowed now.
        """
        place = robots_url(url)
        known = self._known.get(place)
        now = time.monotonic()
        if known is not None and not anew and now - known[1] < self.fresh_seconds:
            return known[0]
        try:
            async with self._politeness.turn(URL(place).raw_authority, 0.0):
                robots = await fetch_robots(self._fetcher, url, self._agent)
        except FetchFailed:
            # What it said last holds on, as RFC 9309 has it.
            if known is None or anew:
                raise
            robots = known[0]
        self._known[place] = robots, now
        self._known.move_to_end(place)
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return robots

    async def rules_at(self, origins: Collection[str]) -> dict[str, Robots]:
        """What holds at each origin; without those where it cannot be had."""
        found = await asyncio.gather(*(self._rules_at(origin) for origin in origins))
        return {
            origin: robots
            for origin, robots in zip(origins, found, strict=True)
            if robots is not None
        }

    async def _rules_at(self, origin: str) -> Robots | None:
        try:
            return await self.rules_of(origin)
        except FetchFailed as failure:
            log.info("a host's robots.txt cannot be had", origin=origin, reason=str(failure))
            return None
