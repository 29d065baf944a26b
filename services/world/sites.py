"""The URLs of generated sites: written when they are asked for, because millions fill gigabytes."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from shared.contracts.identity import page_id_of

_AT_ONCE = 1 << 16
"""URLs that are there at the same time."""

Rows = slice | NDArray[np.int64]


class SiteNames(Sequence[str]):
    """A name for each page."""

    @abstractmethod
    def take(self, rows: Rows) -> list[str]:
        """The names of some pages."""

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return self.take(row)
        return self.take(np.array([row]))[0]


class SiteHosts(SiteNames):
    """The host of each page."""

    def __init__(self, site: NDArray[np.int32]) -> None:
        self._site = site

    def __len__(self) -> int:
        return int(self._site.size)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """Number of the host of each page."""
        return self._site.astype(np.int64)

    def take(self, rows: Rows) -> list[str]:
        """The hosts of some pages."""
        return [f"site-{site}.example" for site in self._site[rows].tolist()]


class SiteUrls(SiteNames):
    """The canonical URL of each page."""

    def __init__(self, site: NDArray[np.int32], number: NDArray[np.int32]) -> None:
        """Name the pages.

        Args:
            site: of each page.
            number: of the page on its site.
        """
        self._site = site
        self._number = number

    def __len__(self) -> int:
        return int(self._site.size)

    def take(self, rows: Rows) -> list[str]:
        """The URLs of some pages."""
        names = zip(self._site[rows].tolist(), self._number[rows].tolist(), strict=True)
        return [f"https://site-{site}.example/page/{number}" for site, number in names]

    def page_ids(self) -> NDArray[np.int64]:
        """The id of each page."""
        ids = np.empty(len(self), np.int64)
        for begin in range(0, len(self), _AT_ONCE):
            part = slice(begin, begin + _AT_ONCE)
            ids[part] = [page_id_of(url) for url in self.take(part)]
        return ids
