"""Which pages are there, and how many each host has: for those who find new ones."""

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from shared.contracts.identity import PageIdentity
from shared.contracts.layout import Layout
from shared.store.host_pages import HostPages, PagesByHost, count_pages_by_host, hosts_there
from shared.store.known_pages import known_pages
from shared.store.layout import read_layout
from shared.store.questions import Questions

COUNTED_SECONDS: Final = 3600.0
"""The pages of a shard's hosts are counted anew after so long; until then those that were let in
here are added."""

ABSENT_SECONDS: Final = 60.0
"""A host that is not there is asked for again after so long."""

MOST_ABSENT: Final = 200_000
"""Hosts that are known not to be there; each page links to some of them."""

_NEW: Final = HostPages(0, True)
"""It came after its shard was counted."""

_NOT_THERE: Final = HostPages(0, False)


@dataclass(slots=True)
class _Counted:
    at: float
    by_host: PagesByHost
    more: Counter[str] = field(default_factory=Counter)
    """Pages that are on their way since."""


class WhatIsKnown:
    """Asks the database, and remembers what may be a little old. One call at a time."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions
        self._layout: Layout | None = None
        self._counted: dict[int, _Counted] = {}
        self._absent: OrderedDict[str, float] = OrderedDict()

    async def pages(self, pages: Sequence[PageIdentity]) -> set[int]:
        """Ids of those pages that are there, whatever their status.

        Raises:
            psycopg.Error: the database is away, or refuses.
        """
        return await self._questions.ask(known_pages, pages)

    async def hosts(self, hosts: Collection[str], now: float) -> dict[str, HostPages]:
        """How many pages hosts have.

        The first question about a host of a shard in an hour looks through all pages of the shard.

        Args:
            hosts: by name.
            now: wall (monotonic) seconds.

        Raises:
            psycopg.Error: the database is away, or refuses.
        """
        layout = self._layout = await self._questions.ask(read_layout)
        shards = {host: layout.shard_of(host) for host in hosts}
        for shard in set(shards.values()):
            await self._count(shard, now)
        known = {host: self._counted[shard].by_host.of_host(host) for host, shard in shards.items()}
        unknown = {host: shards[host] for host, found in known.items() if found is None}
        there = await self._there(unknown, now)
        return {
            host: self._with_more(
                found or (_NEW if host in there else _NOT_THERE), host, shards[host]
            )
            for host, found in known.items()
        }

    def add(self, pages_by_host: Mapping[str, int]) -> None:
        """So many pages more are on their way; of hosts that were asked for."""
        for host, pages in pages_by_host.items():
            if self._layout is not None:
                self._counted[self._layout.shard_of(host)].more[host] += pages

    async def _count(self, shard: int, now: float) -> None:
        counted = self._counted.get(shard)
        if counted is None or now >= counted.at + COUNTED_SECONDS:
            by_host = await self._questions.ask(count_pages_by_host, shard)
            self._counted[shard] = _Counted(now, by_host)

    async def _there(self, wanted: Mapping[str, int], now: float) -> set[str]:
        """Those hosts that are there though they had no pages when those were counted."""
        asked = {
            host: shard
            for host, shard in wanted.items()
            if now >= self._absent.get(host, float("-inf")) + ABSENT_SECONDS
        }
        if not asked:
            return set()
        found = await self._questions.ask(hosts_there, asked)
        self._note_absent(asked.keys() - found, now)
        return found

    def _note_absent(self, hosts: Iterable[str], now: float) -> None:
        for host in hosts:
            self._absent[host] = now
            self._absent.move_to_end(host)
        while len(self._absent) > MOST_ABSENT:
            self._absent.popitem(last=False)

    def _with_more(self, found: HostPages, host: str, shard: int) -> HostPages:
        more = self._counted[shard].more.get(host, 0)
        return HostPages(found.pages + more, found.is_known)
