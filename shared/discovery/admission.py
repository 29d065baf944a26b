"""Links in, new pages out: what is no page, not wanted or known is sorted out, each with why."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal, NamedTuple, Protocol

from shared.contracts.identity import BadUrl, PageIdentity, identify
from shared.discovery.rules import DiscoveryRules, Refusal
from shared.discovery.updates import Said

MOST_REMEMBERED: Final = 500_000
"""Pages that are known to be known, about 60 MB: links lead to the same ones again and again."""

REMEMBERED_SECONDS: Final = 3600.0
"""... for so long: a page may have been erased meanwhile, and is a new one then."""

FEW: Final = 100
"""More links are looked at in a thread."""

Became = Refusal | Literal["new", "known"]


class Link(NamedTuple):
    """A URL that a crawl has come upon."""

    url: str
    """As it was written."""
    depth: int | None
    """Its own, in links from where the crawl began; None: not known."""
    found_at: float
    """Unix seconds."""


class Judged(NamedTuple):
    """What became of a link."""

    became: Became
    page: PageIdentity | None
    """None: it is no URL of a page."""


class Known(Protocol):
    """What is there already. Every question waits for the database, and may fail as it does."""

    async def pages(self, pages: Sequence[PageIdentity]) -> set[int]:
        """Ids of those pages that are there, whatever their status."""
        ...

    async def hosts(self, hosts: Collection[str], now: float) -> set[str]:
        """Those that have a page which was not removed; `now` in wall (monotonic) seconds."""
        ...

    async def let_in(
        self, pages: Sequence[PageIdentity], most: int, now: float
    ) -> Mapping[int, Literal["new", "known", "quota", "host"]]:
        """Let pages in as long as their hosts have fewer than the most; by id what became of each:
        one that is `new` counts from now on, and once, however often it is let in. `host`: that has
        the id of another one."""
        ...


class Admission:
    """Judges links. One call at a time."""

    def __init__(
        self, rules: DiscoveryRules, known: Known, most_remembered: int = MOST_REMEMBERED
    ) -> None:
        self._rules = rules
        self._known = known
        self._most_remembered = most_remembered
        self._remembered: OrderedDict[int, float] = OrderedDict()
        """Since when, monotonic; the one that was named last is the last."""

    def go_by(self, rules: DiscoveryRules) -> None:
        """Go by other rules, from the next links on."""
        self._rules = rules

    def said_of(self, page: PageIdentity) -> Said:
        """What the rules say of a page that is let in."""
        return self._rules.said_of(page)

    async def judge(self, links: Sequence[Link], now: float) -> list[Judged]:
        """What becomes of each link; of several that are one page, all become what it does.

        A page that is `new` is to be published, and remembered when that is done; until then it is
        new again.

        Args:
            links: as they were found.
            now: wall (monotonic) seconds.
        """
        if len(links) <= FEW:
            judged, open_ = self._sort_out(links, now)
        else:
            judged, open_ = await asyncio.to_thread(self._sort_out, links, now)
        if open_:
            verdicts = await self._look_up(list(open_.values()), now)
            judged = [
                Judged(verdicts[was.page.url], was.page)
                if was.became == "new" and was.page is not None
                else was
                for was in judged
            ]
        return judged

    def remember(self, pages: Iterable[PageIdentity], now: float) -> None:
        """Note that pages are known now, in wall (monotonic) seconds."""
        for page in pages:
            name = _remembered_as(page)
            self._remembered[name] = now
            self._remembered.move_to_end(name)
            if len(self._remembered) > self._most_remembered:
                self._remembered.popitem(last=False)

    def _sort_out(
        self, links: Sequence[Link], now: float
    ) -> tuple[list[Judged], dict[str, PageIdentity]]:
        """What the links say by themselves; and the pages, by URL, that are still to be looked up,
        which are taken for new."""
        judged: list[Judged] = []
        open_: dict[str, PageIdentity] = {}
        for link in links:
            try:
                page = identify(link.url)
            except BadUrl:
                judged.append(Judged("no-url", None))
                continue
            name = _remembered_as(page)
            if now < self._remembered.get(name, -math.inf) + REMEMBERED_SECONDS:
                self._remembered.move_to_end(name)
                judged.append(Judged("known", page))
            elif (refusal := self._rules.refusal(page, link.depth)) is not None:
                judged.append(Judged(refusal, page))
            else:
                open_[page.url] = page
                judged.append(Judged("new", page))
        return judged, open_

    async def _look_up(self, pages: Sequence[PageIdentity], now: float) -> dict[str, Became]:
        """What becomes of pages that the rules have nothing against, by their URLs."""
        hosts = {page.host for page in pages}
        hosts = {host for host in hosts if self._rules.hosts.name(host)} | await self._known.hosts(
            hosts, now
        )
        wanted = [page for page in pages if page.host in hosts]
        # URLs are made that have another one's id. What is found by id is said of one page, of a
        # host that is wanted: no other gets in by it.
        first: dict[int, PageIdentity] = {}
        for page in wanted:
            first.setdefault(page.page_id, page)
        verdicts = await self._by_id(list(first.values()), now)
        became: dict[str, Became] = {page.url: "host" for page in pages}
        became |= {page.url: "known" for page in wanted}
        return became | {page.url: verdicts[page_id] for page_id, page in first.items()}

    async def _by_id(self, wanted: Sequence[PageIdentity], now: float) -> dict[int, Became]:
        """What becomes of pages of hosts that are wanted, each with an id of its own."""
        found = await self._known.pages(wanted) if wanted else set()
        verdicts: dict[int, Became] = dict.fromkeys(found, "known")
        asking = [page for page in wanted if page.page_id not in found]
        if asking:
            most = self._rules.most_pages_of_host
            verdicts |= await self._known.let_in(asking, most, now)
        self.remember((page for page in wanted if verdicts[page.page_id] == "known"), now)
        return verdicts


def _remembered_as(page: PageIdentity) -> int:
    """Python's hash of a URL has a secret of the process: unlike ids, nobody makes two alike."""
    return hash(page.url)
