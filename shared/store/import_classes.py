"""The classes of pages that are imported, as numbers in the tables of their shards."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.fields import MAX_CLASS_LENGTH
from shared.store.class_numbers import AS_IT_IS, NO_CLASS, PageClasses, TooManyClasses
from shared.store.page_classes import read_classes, read_unused_classes, write_classes

_NAME: Final = re.compile(rf"[a-z0-9._-]{{1,{MAX_CLASS_LENGTH}}}")


def why_no_class(name: str | None) -> str | None:
    """Why a name is none of a class; None: it is, or is empty."""
    if not name or _NAME.fullmatch(name):
        return None
    return f"class {name[:100]!r} must be of a-z, 0-9, '.', '_' and '-', 32 at most"


class ImportClasses:
    """The classes of a database's shards while one import writes them, and nobody else."""

    def __init__(self, connection: psycopg.Connection) -> None:
        """Make it.

        Args:
            connection: of the import, for writing.
        """
        self._connection = connection
        self._known: dict[int, PageClasses] = {}
        self._searched: set[int] = set()
        """Shards of which it is known which classes have pages: that is asked once."""

    def numbers_of(
        self, shards: NDArray[np.int16], names: Sequence[str | None] | None
    ) -> tuple[NDArray[np.int16], dict[int, str]]:
        """The numbers of the classes of pages; new ones are noted in this transaction.

        Args:
            shards: of the pages.
            names: of their classes, None or empty: to have none; None in place of all: nothing is
                said of classes.

        Returns:
            a number a page, and place → why the page cannot be taken.
        """
        numbers = np.full(shards.size, AS_IT_IS if names is None else NO_CLASS, np.int16)
        refused: dict[int, str] = {}
        for place, name in enumerate(names or ()):
            if not name:
                continue
            shard = int(shards[place])
            if shard not in self._known:
                self._known[shard] = PageClasses(read_classes(self._connection, shard))
            try:
                numbers[place] = self._known[shard].number_of(name)
            except TooManyClasses as error:
                given = numbers[:place][shards[:place] == shard]
                if not self._has_room(shard, given):
                    refused[place] = str(error)
                    continue
                numbers[place] = self._known[shard].number_of(name)
        self._note_new()
        return numbers, refused

    def _has_room(self, shard: int, given: NDArray[np.int16]) -> bool:
        """Whether there is a number, as classes have no page any more: neither in the database nor
        among those of this transaction, which have these numbers."""
        if shard in self._searched:
            return False
        self._searched.add(shard)
        unused = read_unused_classes(self._connection, shard) - set(given.tolist())
        self._known[shard].may_give_away(unused)
        return bool(unused)

    def _note_new(self) -> None:
        for shard, classes in self._known.items():
            if new := classes.take_new():
                write_classes(self._connection, shard, new)
