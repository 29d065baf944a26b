"""The classes of pages that are imported, as numbers in the tables of their shards."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from shared.contracts.fields import MAX_CLASS_LENGTH
from shared.store.class_numbers import AS_IT_IS, NO_CLASS, PageClasses, TooManyClasses
from shared.store.page_classes import read_classes, write_classes

_NAME: Final = re.compile(rf"[a-z0-9._-]{{1,{MAX_CLASS_LENGTH}}}")


def why_no_class(name: str | None) -> str | None:
    """Why a name is none of a class; None: it is, or is empty."""
    if not name or _NAME.fullmatch(name):
        return None
    return f"class {name[:100]!r} must be of a-z, 0-9, '.', '_' and '-', 32 at most"


def class_numbers(
    connection: psycopg.Connection, shards: NDArray[np.int16], names: Sequence[str | None] | None
) -> tuple[NDArray[np.int16], dict[int, str]]:
    """The numbers of the classes of pages; new ones are noted in this transaction.

    Args:
        connection: of the one import that is under way, for writing.
        shards: of the pages.
        names: of their classes, None or empty: to have none; None in place of all: nothing is
            said of classes.

    Returns:
        a number a page, and place → why the page cannot be taken.
    """
    numbers = np.full(shards.size, AS_IT_IS if names is None else NO_CLASS, np.int16)
    refused: dict[int, str] = {}
    known: dict[int, PageClasses] = {}
    for place, name in enumerate(names or ()):
        if not name:
            continue
        shard = int(shards[place])
        if shard not in known:
            known[shard] = PageClasses(read_classes(connection, shard))
        try:
            numbers[place] = known[shard].number_of(name)
        except TooManyClasses as error:
            refused[place] = str(error)
    for shard, classes in known.items():
        if new := classes.take_new():
            write_classes(connection, shard, new)
    return numbers, refused
