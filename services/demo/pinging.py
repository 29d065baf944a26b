"""The sites' own programs, which tell an IndexNow engine of each change: here, the receiver."""

import asyncio
from typing import Final

import aiohttp

from services.demo.documents import KEY
from services.demo.website import Site, Website

TURN_SECONDS: Final = 0.25
_ANSWER_SECONDS: Final = 10.0
_TAKEN: Final = frozenset({200, 202})


class Pinger:
    """Sends what the plan has."""

    def __init__(self, website: Website, receiver: str) -> None:
        """Make it.

        Args:
            website: whose sites ping.
            receiver: its address.
        """
        self.taken = 0
        """URLs that the receiver has taken."""
        self.refused = 0
        """Answers by which it did not."""
        self._website = website
        self._address = f"{receiver}/indexnow"
        self._sent = dict.fromkeys((site.host for site in website.sites), 0)

    async def run(self) -> None:
        """Ping for as long as it is let; what the receiver does not take is sent again."""
        timeout = aiohttp.ClientTimeout(total=_ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as client:
            while True:
                now = self._website.now()
                for site in self._website.sites:
                    await self._ping(client, site, now)
                await asyncio.sleep(TURN_SECONDS)

    async def _ping(self, client: aiohttp.ClientSession, site: Site, now: float) -> None:
        sent = self._sent[site.host]
        due = [path for at, path in site.plan.pings[sent:] if at <= now]
        if not due:
            return
        urls = [site.url(path) for path in dict.fromkeys(due)]
        body = {"host": site.host, "key": KEY, "urlList": urls}
        try:
            async with client.post(self._address, json=body) as answer:
                status = answer.status
        except (aiohttp.ClientError, TimeoutError):
            status = 0
        if status in _TAKEN:
            self._sent[site.host] = sent + len(due)
            self.taken += len(urls)
        else:
            self.refused += 1
