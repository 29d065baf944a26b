"""Which database has a shard, where the shards are shared out among several.

Ranges are of the shards that there are at the beginning, and a shard s that comes by a growth is
where s mod their number is. So a shard and those that its hosts are split among
(`shared.contracts.layout`) are always in one database, and a split is one transaction there.

The database of shard 0 is the home: what is not of a single shard is in it alone.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Self

from shared.contracts.identity import shard_of
from shared.contracts.layout import MOST_SHARDS, Layout

_ENTRY: Final = re.compile(r"(?:^|[,\s])\s*(\d{1,6})(?:-(\d{1,6}))?=")
"""The beginning of an entry. A URL may have commas itself, but nothing like this after one."""

SCHEMES: Final = ("postgresql://", "postgres://")
"""Of a database's URL, as libpq has them."""


@dataclass(frozen=True, slots=True)
class Database:
    """One of them."""

    url: str = field(repr=False)
    """libpq URL, which may have a password."""
    held: str | None
    """The shards that it has, such as `0-127/256`: those whose remainder by 256 is in the range.
    None: all."""


@dataclass(frozen=True, slots=True)
class Databases:
    """All of them, and what each has."""

    each: tuple[Database, ...]
    """The home first."""
    _of_remainder: tuple[int, ...]
    """Number of the database that has the shards with this remainder."""

    @classmethod
    def alone(cls, url: str) -> Self:
        """One database that has all shards."""
        return cls((Database(url, None),), (0,))

    @classmethod
    def parse(cls, text: str) -> Self:
        """From `0-127=postgresql://a/freshet,128-255=postgresql://b/freshet`.

        Args:
            text: ranges and URLs, with commas or space between two entries. A database may have
                several ranges.

        Raises:
            ValueError: the ranges overlap, or leave shards out, or it is nothing of the kind; the
                text says where, and has no URL in it, which may be secret.
        """
        # By shards, not as they are written: in another order the home is the same.
        entries = sorted(_entries(text), key=lambda entry: min(entry[0]))
        urls = list(dict.fromkeys(url for _, url in entries))
        places: dict[int, int] = {}
        for shards, url in entries:
            if twice := sorted(places.keys() & shards):
                raise ValueError(f"shard {twice[0]} is in two ranges")
            places |= dict.fromkeys(shards, urls.index(url))
        if missing := sorted(set(range(max(places) + 1)) - places.keys()):
            raise ValueError(f"no range has shard {missing[0]}")
        of_remainder = tuple(places[number] for number in range(len(places)))
        return cls(
            tuple(Database(url, _held(of_remainder, n)) for n, url in enumerate(urls)), of_remainder
        )

    @property
    def home(self) -> Database:
        """The one with what is not of a single shard."""
        return self.each[0]

    @property
    def modulus(self) -> int:
        """How many shards the ranges are of; there may be a multiple of it."""
        return len(self._of_remainder)

    @property
    def are_several(self) -> bool:
        """Whether there is more than one."""
        return len(self.each) > 1

    def at(self, url: str) -> Database:
        """The one with a URL.

        Raises:
            LookupError: it is none of them.
        """
        found = [database for database in self.each if database.url == url]
        if not found:
            raise LookupError("none of the databases has this URL")
        return found[0]

    def of(self, shard: int) -> Database:
        """The one that has a shard."""
        return self.each[self._of_remainder[shard % self.modulus]]

    def of_host(self, host: str) -> Database:
        """The one that has a host, however many shards there are."""
        return self.of(shard_of(host, self.modulus))

    def shared(self, shards: Iterable[int]) -> dict[Database, set[int]]:
        """Database → those of some shards that it has; others are left out."""
        found: dict[Database, set[int]] = {}
        for shard in shards:
            found.setdefault(self.of(shard), set()).add(shard)
        return found

    def had_by(self, database: Database, shards: Collection[int]) -> list[int]:
        """Those of some shards that a database has, in their order."""
        return [shard for shard in shards if self.of(shard) == database]

    def layout_of_all(self, layouts: Mapping[Database, Layout]) -> Layout:
        """As all databases know the layout, each of its own shards.

        What one says of the shards of others was so when those were split, and is not where another
        was restored from a dump of before. One that does not know yet that a growth begins has
        split nothing of it.

        Args:
            layouts: of each.
        """
        newest = max(layouts.values(), key=lambda layout: (layout.shards, layout.grown_from))
        split = {
            parent
            for parent in range(newest.grown_from)
            if layouts[self.of(parent)].modulus_of(parent) == newest.shards > newest.grown_from
        }
        return replace(newest, split=frozenset(split))


def _entries(text: str) -> list[tuple[set[int], str]]:
    """Shards and URL of each entry."""
    text = text.strip()
    found = list(_ENTRY.finditer(text))
    if not found or found[0].start():
        raise ValueError("it must begin with shards and where they are: 0-127=postgresql://…")
    ends = [one.start() for one in found[1:]] + [len(text)]
    entries = []
    for one, end in zip(found, ends, strict=True):
        name, first, last = one[0].strip(" ,=\n\t"), int(one[1]), int(one[2] or one[1])
        if last < first:
            raise ValueError(f"range {name} ends before it begins")
        if last >= MOST_SHARDS:
            raise ValueError(f"range {name} goes beyond {MOST_SHARDS} shards")
        url = text[one.end() : end].strip().rstrip(",").strip()
        if not url.startswith(SCHEMES) or re.search(r"\s", url):
            raise ValueError(f"range {name} needs a URL that begins with postgresql://")
        if url.count("://") > 1:
            # An open range, or another mark between two entries: all would be in one database.
            raise ValueError(
                f"what follows the URL of range {name} is no entry: 0-127=postgresql://…"
            )
        entries.append((set(range(first, last + 1)), url))
    return entries


def _held(of_remainder: tuple[int, ...], number: int) -> str | None:
    """What a database has, the same text for the same shards."""
    if set(of_remainder) == {number}:
        return None
    ranges: list[list[int]] = []
    for remainder, database in enumerate(of_remainder):
        if database != number:
            continue
        if ranges and ranges[-1][1] == remainder - 1:
            ranges[-1][1] = remainder
        else:
            ranges.append([remainder, remainder])
    return f"{','.join(f'{first}-{last}' for first, last in ranges)}/{len(of_remainder)}"
