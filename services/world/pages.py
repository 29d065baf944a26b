"""The pages of a world, as columns."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from services.world.sites import SiteHosts, SiteNames
from shared.contracts.identity import identify


@dataclass(frozen=True, slots=True)
class WorldPages:
    """One row a page; the row number is the page's number everywhere in the world."""

    urls: Sequence[str]
    """Canonical."""
    hosts: Sequence[str]
    page_ids: NDArray[np.int64]
    importance: NDArray[np.float64]
    max_age_days: NDArray[np.float64]
    """Infinity: no bound."""
    held: NDArray[np.bool_]
    """Whether a fresh copy is held at day 0; the others have never been crawled."""

    def __len__(self) -> int:
        return len(self.urls)

    @property
    def host_numbers(self) -> NDArray[np.int64]:
        """Number of the host of each page, from 0 on."""
        if isinstance(self.hosts, SiteHosts):
            return self.hosts.numbers
        _, numbers = np.unique(np.array(self.hosts, np.str_), return_inverse=True)
        return numbers.astype(np.int64)

    def names(self, rows: NDArray[np.int64]) -> tuple[list[str], list[str]]:
        """URLs and hosts of some pages."""
        return _taken(self.urls, rows), _taken(self.hosts, rows)


def _taken(names: Sequence[str], rows: NDArray[np.int64]) -> list[str]:
    if isinstance(names, SiteNames):
        return names.take(rows)
    return [names[row] for row in rows.tolist()]


def make_pages(
    urls: list[str],
    importance: NDArray[np.float64],
    *,
    max_age_days: NDArray[np.float64] | None = None,
    held: NDArray[np.bool_] | None = None,
) -> WorldPages:
    """Name the pages.

    Args:
        urls: any form that `identify` takes.
        importance: one a page.
        max_age_days: infinity or absent: no bound.
        held: absent: all are held at day 0.

    Raises:
        BadUrl: a URL is not one that Freshet takes.
        ValueError: two URLs are the same page.
    """
    names = [identify(url) for url in urls]
    page_ids = np.array([name.page_id for name in names], dtype=np.int64)
    unique, first = np.unique(page_ids, return_index=True)
    if unique.size != page_ids.size:
        repeated = np.setdiff1d(np.arange(page_ids.size), first)[0]
        raise ValueError(f"page {names[repeated].url} is there twice (row {repeated + 1})")
    count = len(names)
    return WorldPages(
        urls=[name.url for name in names],
        hosts=[name.host for name in names],
        page_ids=page_ids,
        importance=importance,
        max_age_days=np.full(count, np.inf) if max_age_days is None else max_age_days,
        held=np.ones(count, np.bool_) if held is None else held,
    )
