"""The URLs of generated sites: written when they are asked for, because millions fill gigabytes."""

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from shared.contracts.identity import page_id_of


class SiteHosts(Sequence[str]):
    """The host of each page."""

    def __init__(self, site: NDArray[np.int32]) -> None:
        self._site = site

    def __len__(self) -> int:
        return int(self._site.size)

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [_host(site) for site in self._site[row].tolist()]
        return _host(int(self._site[row]))


class SiteUrls(Sequence[str]):
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

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            names = zip(self._site[row].tolist(), self._number[row].tolist(), strict=True)
            return [_url(site, number) for site, number in names]
        return _url(int(self._site[row]), int(self._number[row]))

    def page_ids(self) -> NDArray[np.int64]:
        """The id of each page."""
        names = zip(self._site.tolist(), self._number.tolist(), strict=True)
        ids = (page_id_of(_url(site, number)) for site, number in names)
        return np.fromiter(ids, np.int64, len(self))


def _host(site: int) -> str:
    return f"site-{site}.example"


def _url(site: int, number: int) -> str:
    return f"https://site-{site}.example/page/{number}"
