"""What the robots.txt of each host says, remembered for a day."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Collection
from typing import Final, NamedTuple, TypeVar

import structlog
from yarl import URL

from services.poller.rhythm import LONGEST_ASKED_SECONDS, MOST_DOUBLINGS
from services.poller.sites.looking_again import UNKNOWN_SECONDS
from services.poller.sites.politeness import Politeness
from shared.discovery.busy import Busy
from shared.discovery.robots import Robots, fetch_robots, robots_url
from shared.runtime.fetching import Fetcher, FetchFailed
from shared.units import SECONDS_PER_DAY

log = structlog.get_logger(__name__)

MOST_KNOWN: Final = 10_000

FIRST_WAIT_SECONDS: Final = 60.0
"""Until a robots.txt that could not be had is asked for again; twice as many each time."""

LONGEST_WAIT_SECONDS: Final = UNKNOWN_SECONDS / 2
"""A document that is looked at again because of it finds it asked for, not just about to be."""

T = TypeVar("T")


class NotYet(FetchFailed):
    """A robots.txt could not be had a while ago, and is not asked for again yet."""

    def __init__(self, reason: str, seconds: float) -> None:
        super().__init__(reason)
        self.seconds = seconds
        """Until it is."""


class _Failing(NamedTuple):
    reason: str
    times: int
    until: float
    """It is not asked for before."""


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
        self._failing: OrderedDict[str, _Failing] = OrderedDict()

    async def rules_of(self, url: str, *, anew: bool = False) -> Robots:
        """What holds for a URL.

        Args:
            url: of any file of the host.
            anew: what was read is not enough.

        Raises:
            NotYet: it could not be had a while ago.
            FetchFailed: it cannot be had, and never was, so nothing is allowed now.
        """
        place = robots_url(url)
        if (robots := self._remembered(place, anew=anew)) is not None:
            return robots
        async with self._politeness.turn(URL(place).raw_authority, 0.0):
            # Whoever had the turn before may have asked for the same.
            if (robots := self._remembered(place, anew=anew)) is not None:
                return robots
            return await self._ask(place, anew=anew)

    def _remembered(self, place: str, *, anew: bool) -> Robots | None:
        """What a robots.txt says, without a question; None: it is to be asked for."""
        known, failing = self._known.get(place), self._failing.get(place)
        now = time.monotonic()
        if known is not None and not anew and now - known[1] < self.fresh_seconds:
            return known[0]
        if failing is None or now >= failing.until:
            return None
        if known is None or anew:
            raise NotYet(failing.reason, failing.until - now)
        return known[0]

    async def _ask(self, place: str, *, anew: bool) -> Robots:
        known = self._known.get(place)
        try:
            robots = await fetch_robots(self._fetcher, place, self._agent)
        except FetchFailed as failure:
            self._note_failure(place, failure)
            # What it said last holds on, as RFC 9309 has it.
            if known is None or anew:
                raise
            robots = known[0]
        else:
            self._failing.pop(place, None)
        _remember(self._known, place, (robots, time.monotonic()))
        return robots

    def _note_failure(self, place: str, failure: FetchFailed) -> None:
        """Ask no more for a while, however many files of the host are to be read."""
        before = self._failing.get(place)
        times = 0 if before is None else before.times
        wait = min(FIRST_WAIT_SECONDS * 2.0 ** min(times, MOST_DOUBLINGS), LONGEST_WAIT_SECONDS)
        if isinstance(failure, Busy) and failure.seconds is not None:
            wait = max(wait, min(failure.seconds, LONGEST_ASKED_SECONDS))
        until = time.monotonic() + wait
        _remember(self._failing, place, _Failing(str(failure), times + 1, until))

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


def _remember(memory: OrderedDict[str, T], place: str, what: T) -> None:
    """Without what was remembered longest ago, where that is too much."""
    memory[place] = what
    memory.move_to_end(place)
    if len(memory) > MOST_KNOWN:
        memory.popitem(last=False)
