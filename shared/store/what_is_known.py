"""Which pages are there, and how many each host has: for those who find new ones."""

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

from shared.contracts.identity import PageIdentity
from shared.store.host_pages import HostPages, PagesByHost, count_pages_by_host, hosts_there
from shared.store.known_pages import known_pages
from shared.store.layout import read_layout
from shared.store.let_in import Became, forget_let_in, let_in
from shared.store.questions import Questions, SharedQuestions

COUNTED_SECONDS: Final = 3600.0
"""The pages of a shard's hosts are counted anew after so long; what links add meanwhile is known,
and what operators add is not."""

ABSENT_SECONDS: Final = 60.0
"""A host that is not there is asked for again after so long."""

MOST_ABSENT: Final = 200_000
"""Hosts that are known not to be there; each page links to some of them."""


_host_of: Final = attrgetter("host")


@dataclass(frozen=True, slots=True)
class _Counted:
    at: float
    by_host: PagesByHost


class WhatIsKnown:
    """Asks the database, and remembers what may be a little old. One call at a time."""

    def __init__(self, questions: SharedQuestions) -> None:
        self._questions = questions
        self._counted: dict[int, _Counted] = {}
        self._absent: OrderedDict[str, float] = OrderedDict()

    async def pages(self, pages: Sequence[PageIdentity]) -> set[int]:
        """Ids of those pages that are there, whatever their status.

        Raises:
            psycopg.Error: the database is away, or refuses.
        """
        found: set[int] = set()
        for questions, part in self._questions.by_host(pages, _host_of):
            found |= await questions.ask(known_pages, part)
        return found

    async def hosts(self, hosts: Collection[str], now: float) -> set[str]:
        """Those hosts that have a page which was not removed.

        The first question about a host of a shard in an hour looks through all pages of the shard.

        Args:
            hosts: by name.
            now: wall (monotonic) seconds.

        Raises:
            psycopg.Error: the database is away, or refuses.
        """
        found = await self._of_hosts(hosts, now)
        unknown = {host: shard for host, (shard, counted) in found.items() if counted is None}
        known = {host for host, (_, counted) in found.items() if counted and counted.is_known}
        return known | await self._there(unknown, now)

    async def let_in(
        self, pages: Sequence[PageIdentity], most: int, now: float
    ) -> Mapping[int, Became]:
        """Let pages in as long as their hosts have fewer than the most; what became of each, by id.

        Args:
            pages: each once.
            most: pages of a host.
            now: wall (monotonic) seconds.

        Raises:
            psycopg.Error: the database is away, or refuses.
        """
        found = await self._of_hosts({page.host for page in pages}, now)
        # A host that was not there when its shard was counted has what was let in since.
        before = {host: counted.before if counted else 0 for host, (_, counted) in found.items()}
        became: dict[int, Became] = {}
        for questions, part in self._questions.by_host(pages, _host_of):
            became |= await questions.ask(let_in, part, before, most)
        return became

    async def _of_hosts(
        self, hosts: Collection[str], now: float
    ) -> dict[str, tuple[int, HostPages | None]]:
        """The shard of each host, and what was counted there."""
        known: dict[str, tuple[int, HostPages | None]] = {}
        for questions, some in self._questions.by_host(hosts, str):
            known |= await self._of_hosts_there(questions, some, now)
        return known

    async def _of_hosts_there(
        self, questions: Questions, hosts: Collection[str], now: float
    ) -> dict[str, tuple[int, HostPages | None]]:
        while True:
            layout = await questions.ask(read_layout)
            shards = {host: layout.shard_of(host) for host in hosts}
            for shard in set(shards.values()):
                await self._count(shard, layout.modulus_of(shard), now)
            counted = {shard: self._counted[shard].by_host for shard in set(shards.values())}
            # A shard that was split meanwhile was counted without what went to others.
            if all(layout.modulus_of(shard) == one.modulus for shard, one in counted.items()):
                return {
                    host: (shard, counted[shard].of_host(host)) for host, shard in shards.items()
                }

    async def _count(self, shard: int, modulus: int, now: float) -> None:
        counted = self._counted.get(shard)
        is_old = counted is None or now >= counted.at + COUNTED_SECONDS
        if counted is None or is_old or counted.by_host.modulus != modulus:
            questions = self._questions.of_shard(shard)
            await questions.ask(forget_let_in, shard, modulus)
            by_host = await questions.ask(count_pages_by_host, shard)
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
        found: set[str] = set()
        for questions, some in self._questions.by_host(asked, str):
            found |= await questions.ask(hosts_there, {host: asked[host] for host in some})
        self._note_absent(asked.keys() - found, now)
        return found

    def _note_absent(self, hosts: Iterable[str], now: float) -> None:
        for host in hosts:
            self._absent[host] = now
            self._absent.move_to_end(host)
        while len(self._absent) > MOST_ABSENT:
            self._absent.popitem(last=False)
