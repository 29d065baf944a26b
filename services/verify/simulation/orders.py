"""What operators say of pages, hosts and the budget while everything runs, and take back."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import OUTSIDE
from services.verify.simulation.truth import Page, Truth
from services.verify.simulation.workers import MAX_AGE_SECONDS
from shared.contracts.messages import HostLimit, PageUpdate
from shared.contracts.topics import HOST_LIMITS, PAGE_UPDATES, Topic
from shared.units import SECONDS_PER_DAY

KNOWN_SECONDS: Final = 2.0
"""Nothing is said of a page before it was added for so long."""

TAKEN_BACK_SECONDS: Final = (0.5, 4.0)
BLOCKED_SECONDS: Final = (2.0, 5.0)

SHORTER: Final = 0.6
"""A bound of age, in that of all pages."""

BUDGETS: Final = (0.5, 1.0, 1.5)
"""After there was none; in that of the beginning."""


@dataclass(frozen=True, slots=True)
class Orders:
    """Says it."""

    loop: VirtualLoop
    truth: Truth
    send: Callable[[Topic, str, Any], None]
    set_budget: Callable[[float], None]
    crawls_per_second: float
    """The budget of the beginning."""

    def give(self, detail: float) -> None:
        """Say something, and take it back later; `detail`, in [0, 1), says what."""
        rng = Random(f"order {detail}")  # noqa: S311 - a simulation; the fault says what
        now = self.loop.now
        known = [
            page
            for page in self.truth.pages
            if page.removed_at == math.inf and page.added_at + KNOWN_SECONDS < now
        ]
        what = rng.choice((self._want_at_once, self._bound_age, self._block, self._stop))
        if known:
            what(rng.choice(known), rng)

    def _want_at_once(self, page: Page, _rng: Random) -> None:
        self._update(page, urgent=True)

    def _bound_age(self, page: Page, rng: Random) -> None:
        self._update(page, max_age_days=SHORTER * MAX_AGE_SECONDS / SECONDS_PER_DAY)
        self._later(rng, lambda: self._update(page, no_max_age=True))

    def _block(self, page: Page, rng: Random) -> None:
        until = self._wall + rng.uniform(*BLOCKED_SECONDS)
        self.send(HOST_LIMITS, page.host, HostLimit(page.host, blocked_until=until, only="block"))
        if rng.random() < 0.5:
            over = HostLimit(page.host, only="block")
            self._later(rng, lambda: self.send(HOST_LIMITS, page.host, over))

    def _stop(self, _page: Page, rng: Random) -> None:
        after = self.crawls_per_second * rng.choice(BUDGETS)
        self.set_budget(0.0)
        self._later(rng, lambda: self.set_budget(after))

    def _update(self, page: Page, **said: Any) -> None:
        update = PageUpdate("upsert", page.url, updated_at=self._wall, **said)
        self.send(PAGE_UPDATES, page.host, update)

    def _later(self, rng: Random, call: Callable[[], None]) -> None:
        seconds = rng.uniform(*TAKEN_BACK_SECONDS)
        self.loop.call_later(seconds, call, context=OUTSIDE.context())

    @property
    def _wall(self) -> float:
        return BEGINNING + self.loop.now
