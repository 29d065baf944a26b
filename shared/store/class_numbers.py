"""Classes of pages, which messages give by name, and a shard's tables by number.

A number is a byte of each page, so a shard has so many classes at most. It is one of the shard: the
estimator gives it away, in the order of the updates, and writes down its name in the transaction
that has the first page of it. A scheduler goes on from the names that it loaded with the pages.

A class that no page has any more keeps its number until there is none left for a new one. Only who
writes the shard, and nobody else meanwhile, may give it away then: an estimator by what it has
found as it loaded the shard, and an import.
"""

from collections.abc import Collection, Mapping
from typing import Final

from msgspec import UnsetType

NO_CLASS: Final = 0

AS_IT_IS: Final = -1
"""An update says nothing of the page's class."""

MOST_CLASSES: Final = 255


class TooManyClasses(Exception):
    """A shard has as many classes as it can; the text says what to do."""


class PageClasses:
    """The classes of a shard's pages."""

    def __init__(
        self, names: Mapping[int, str] | None = None, unused: Collection[int] = ()
    ) -> None:
        """Make it.

        Args:
            names: of those that there are, by number; None: there is none.
            unused: numbers of those that no page has.
        """
        self.names: dict[int, str] = dict(names or {})
        self._numbers = {name: number for number, name in self.names.items()}
        self._unused = set(unused)
        self._new: dict[int, str] = {}

    def number_of(self, given: str | UnsetType | None) -> int:
        """The number of a class that an update names; one that is new gets a number.

        Args:
            given: by `page-updates`.

        Returns:
            `NO_CLASS` where the page is to have none, `AS_IT_IS` where nothing is said.

        Raises:
            TooManyClasses: it is new, and there is no number left.
        """
        if not isinstance(given, str):
            return NO_CLASS if given is None else AS_IT_IS
        if given not in self._numbers:
            self._add(given)
        number = self._numbers[given]
        self._unused.discard(number)
        return number

    def _add(self, name: str) -> None:
        number = next((n for n in range(1, MOST_CLASSES + 1) if n not in self.names), NO_CLASS)
        if number == NO_CLASS:
            if not self._unused:
                raise TooManyClasses(
                    f"class {name} would be the {MOST_CLASSES + 1}th of its shard, and there may "
                    f"be {MOST_CLASSES}: give its pages another one"
                )
            number = min(self._unused)
            if self._numbers.get(self.names[number]) == number:
                del self._numbers[self.names[number]]
        self.names[number] = self._new[number] = name
        self._numbers[name] = number

    def may_give_away(self, unused: Collection[int]) -> None:
        """Let new classes have numbers of those that no page has."""
        self._unused = set(unused)

    def take_new(self) -> dict[int, str]:
        """Number → name of those that are new since the last call."""
        new, self._new = self._new, {}
        return new
