"""The classes of a shard's pages: what each makes of their importance, and how many there are.

A row has the importance that counts, which is the page's own times the weight of its class: so
whatever looks at rows goes by it. The record has the number of the class.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UnsetType
from numpy.typing import NDArray

from services.scheduler.state.rules import ClassRules
from shared.store.class_numbers import AS_IT_IS, MOST_CLASSES, PageClasses, TooManyClasses

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

    def load(self, names: Mapping[int, str], numbers: NDArray[np.int16]) -> None:
        """Take the classes as the database has them, and the number of each page's."""
        self._known = PageClasses(names)
        for number, name in names.items():
            self._follow(number, name)
        self.pages += np.bincount(numbers, minlength=MOST_CLASSES + 1)

    def number_of(self, given: str | UnsetType | None) -> int | None:
        """As `PageClasses.number_of`; None: there are too many."""
        try:
            number = self._known.number_of(given)
        except TooManyClasses:
            return None
        for new, name in self._known.take_new().items():
            self._follow(new, name)
        return number

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
            found |= {name: [n] for n, name in self._known.names.items() if name in found}
            found[OTHERS] = others
        return found
