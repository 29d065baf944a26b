"""The classes of a shard's pages: what each makes of their importance, and how many there are.

A row has the importance that counts, which is the page's own times the weight of its class: so
whatever looks at rows goes by it. The record has the number of the class.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from msgspec import UnsetType
from numpy.typing import NDArray

from services.scheduler.state.rules import ClassRules
from shared.store.class_numbers import AS_IT_IS, MOST_CLASSES, PageClasses, TooManyClasses

MOST_LEFT_OUT: Final = 1_000
"""Pages of which updates were left out, that are remembered."""

LOOKS: Final = 150
"""At the database for each of them, some minutes long: an estimator may be behind."""

OTHERS = ""
"""Pages without a class, and of those of which operators say nothing."""


class ShardClasses:
    """The tables of a shard."""

    def __init__(self, rules: Sequence[ClassRules]) -> None:
        self._rules = {rule.name: rule for rule in rules}
        self._known = PageClasses()
        self._weights = np.ones(MOST_CLASSES + 1)
        self.lanes = np.zeros(MOST_CLASSES + 1, np.uint8)
        """By number: which of the classes with shares it is, from 1 on; 0: none."""
        self.pages = np.zeros(MOST_CLASSES + 1, np.int64)
        """By number: how many there are; at 0 those without a class."""
        self._left_out: dict[int, tuple[float, int]] = {}

    def load(self, names: Mapping[int, str], numbers: NDArray[np.int16]) -> None:
        """Take the classes as the database has them, and the number of each page's."""
        self._known = PageClasses(names)
        for number, name in names.items():
            self._follow(number, name)
        self.pages += np.bincount(numbers, minlength=MOST_CLASSES + 1)

    def number_of(self, given: str | UnsetType | None, *, is_stored: bool = False) -> int | None:
        """As `PageClasses.number_of`; None: there are too many.

        Args:
            given: by an update.
            is_stored: the database has the class, which so is none too many: who wrote it has found
                that another one has no page any more.
        """
        try:
            number = self._known.number_of(given)
        except TooManyClasses:
            if not is_stored or self.pages[1:].all():
                return None
            self._forget_unused()
            number = self._known.number_of(given)
        for new, name in self._known.take_new().items():
            self._follow(new, name)
        return number

    def _forget_unused(self) -> None:
        known = self._known.names
        self._known = PageClasses({n: name for n, name in known.items() if self.pages[n]})
        gone = list(known.keys() - self._known.names.keys())
        self._weights[gone], self.lanes[gone] = 1.0, 0

    def leave_out(self, page_id: int, updated_at: float) -> None:
        """Note an update of a page that is left out, as its class is one too many."""
        self._left_out.pop(page_id, None)
        self._left_out[page_id] = updated_at, LOOKS
        if len(self._left_out) > MOST_LEFT_OUT:
            del self._left_out[next(iter(self._left_out))]

    def take_left_out(self) -> list[int]:
        """The pages that are to be looked for in the database, where their estimator may have found
        room for their classes."""
        found = self._left_out
        self._left_out = {page: (at, looks - 1) for page, (at, looks) in found.items() if looks > 1}
        return list(found)

    def have_stored(self, updated_at: Mapping[int, float]) -> None:
        """Pages are taken from the database, as they were updated there at these times."""
        for page_id, time in updated_at.items():
            if page_id in self._left_out and self._left_out[page_id][0] <= time:
                del self._left_out[page_id]

    def _follow(self, number: int, name: str) -> None:
        if rule := self._rules.get(name):
            self._weights[number] = rule.weight
            self.lanes[number] = rule.lane

    def name_of(self, number: int) -> str | None:
        """The name of a class; None: no class."""
        return self._known.names.get(number)

    def weight_of(self, number: int) -> float:
        """By what the importance of its pages is multiplied."""
        return float(self._weights[number])

    def weighted(
        self, importance: NDArray[np.float64], numbers: NDArray[np.int16]
    ) -> NDArray[np.float64]:
        """The importance that counts, of pages as the database has them."""
        return np.asarray(importance * self._weights[numbers])

    def change(self, page: Any, record: Any, importance: float | None, number: int) -> None:
        """Set a page's own importance (None: it stays) and its class (`AS_IT_IS`: it stays)."""
        before = int(record["page_class"])
        if importance is None:
            importance = float(page["importance"]) / self._weights[before]
        if number != AS_IT_IS:
            record["page_class"] = number
            self.pages[before] -= 1
            self.pages[number] += 1
        page["importance"] = importance * self._weights[record["page_class"]]

    def named(self) -> dict[str, list[int]]:
        """Class that operators named → its number, as a list; `OTHERS` → those of all others."""
        found: dict[str, list[int]] = {name: [] for name in self._rules}
        if found:
            others = [0, *(n for n, name in self._known.names.items() if name not in found)]
            for number, name in self._known.names.items():
                if name in self._rules:
                    found[name].append(number)
            found[OTHERS] = others
        return found
