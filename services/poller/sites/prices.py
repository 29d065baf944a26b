"""What the poller knows of the price of a poll, and of the worth of what one shows.

Both are in PostgreSQL, and neither is needed: where it cannot be had, sources are read in the
rhythm of what they bring.
"""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

import psycopg
import structlog

from shared.contracts.identity import PageIdentity
from shared.policy.polls import signal_worth
from shared.rules.host_objectives import HostObjectives
from shared.runtime.page_class_terms import weights_of
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL
from shared.store.known_pages import ids_by_shard
from shared.store.poll_prices import read_beliefs, read_slot_price
from shared.store.questions import SharedQuestions

log = structlog.get_logger(__name__)

FRESH_SECONDS: Final = 30.0
"""The price is asked for again after so long."""


class Prices:
    """Asks for the price of a slot and for what is learned of pages."""

    def __init__(self, settings: Settings, questions: SharedQuestions) -> None:
        """Make it.

        Args:
            settings: of the process.
            questions: asks the databases.
        """
        self._settings = settings
        self._questions = questions
        self._weights = weights_of(settings.classes)
        self._objectives = HostObjectives(settings.objectives)
        self._price = 0.0
        self._asked_at = float("-inf")
        self._is_away = False

    async def of_slot(self) -> float:
        """What a slot is worth, days; 0: it is not known, or nothing is crawled by value."""
        if self._settings.policy != "crawl-value":
            return 0.0
        now = WALL.now()
        if abs(now - self._asked_at) >= FRESH_SECONDS:
            self._asked_at = now
            try:
                self._price = await self._questions.home.ask(read_slot_price)
                self._is_away = False
            except psycopg.Error as error:
                self._price = 0.0
                self._note(error)
        return self._price

    async def worth_of(self, pages: Sequence[PageIdentity], price: float) -> float | None:
        """What it saves to know of a signal of each page, summed. None: it cannot be known.

        Pages that Freshet does not have yet count as the others do on average.

        Args:
            pages: that a source has shown, each once.
            price: of a slot, above 0.
        """
        found = await self._found(pages, price)
        if found is None:
            return None
        worth, known = found
        return worth * len(pages) / known if known else 0.0

    async def worth_of_known(self, pages: Sequence[PageIdentity], price: float) -> float | None:
        """As `worth_of`, but pages that Freshet does not have count nothing: whoever sends signals
        of the whole web names more of them than anybody wants."""
        found = await self._found(pages, price)
        return None if found is None else found[0]

    async def _found(self, pages: Sequence[PageIdentity], price: float) -> tuple[float, int] | None:
        if not pages:
            return 0.0, 0
        try:
            worth, known = 0.0, 0
            for questions, part in self._questions.by_host(pages, attrgetter("host")):
                for objective, alike in self._by_objective(part):
                    more, found = await questions.ask(
                        _worth_of, alike, price, objective, self._weights
                    )
                    worth, known = worth + more, known + found
        except psycopg.Error as error:
            self._note(error)
            return None
        return worth, known

    def _by_objective(
        self, pages: Sequence[PageIdentity]
    ) -> Iterable[tuple[int, list[PageIdentity]]]:
        """Pages by what they are crawled for."""
        found: dict[int, list[PageIdentity]] = {}
        for page in pages:
            found.setdefault(self._objectives.of(page.host), []).append(page)
        return found.items()

    def _note(self, error: psycopg.Error) -> None:
        if not self._is_away:
            log.warning("sources are read by what they bring alone", error=str(error).strip())
        self._is_away = True


def _worth_of(
    connection: psycopg.Connection,
    pages: Sequence[PageIdentity],
    price: float,
    objective: int,
    weights: Mapping[str, float],
) -> tuple[float, int]:
    """(worth, how many pages are there) of some pages that are crawled for the same."""
    worth, known = 0.0, 0
    for shard, page_ids in ids_by_shard(connection, pages).items():
        beliefs = read_beliefs(connection, shard, page_ids, weights)
        worth += float(signal_worth(*beliefs, price, objective).sum())
        known += beliefs.alpha.size
    return worth, known
