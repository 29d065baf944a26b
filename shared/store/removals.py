"""When pages and hosts were removed or erased: what is older does not bring them back."""

from typing import Final

import numpy as np

from shared.contracts.identity import PageIdentity, host_id_of
from shared.store.columns import RemovedPages
from shared.store.page_status import NEVER

_MOST_NOTED: Final = 100_000
"""Removals that are kept beside the others; then they are put among them."""


class Removals:
    """Those of a shard: 16 bytes a page."""

    def __init__(self) -> None:
        self._stored = RemovedPages.none()
        self._noted: dict[int, float] = {}
        self._hosts: dict[int, float] = {}

    def load(self, stored: RemovedPages, hosts: dict[int, float]) -> None:
        """Take those that a snapshot has; a page may be named twice, a host is once, by its id."""
        self._stored = _sorted(stored)
        self._hosts = dict(hosts)

    def of(self, page: PageIdentity) -> float:
        """When a page was last removed, or its host; NEVER: neither was, as far as is known."""
        removed = self.of_page(page.page_id)
        return max(removed, self.of_host(page.host)) if self._hosts else removed

    def of_page(self, page_id: int) -> float:
        """When a page itself was last removed; NEVER: it was not, as far as is known."""
        ids = self._stored.page_ids
        place = int(np.searchsorted(ids, page_id))
        is_stored = place < ids.size and ids[place] == page_id
        stored = float(self._stored.removed_at[place]) if is_stored else NEVER
        return max(self._noted.get(page_id, NEVER), stored)

    def of_host(self, host: str) -> float:
        """When a host was last erased; NEVER: it was not, as far as is known."""
        return self._hosts.get(host_id_of(host), NEVER) if self._hosts else NEVER

    def note(self, page_id: int, time: float) -> None:
        """A page is removed."""
        self._noted[page_id] = max(time, self._noted.get(page_id, NEVER))
        if len(self._noted) >= _MOST_NOTED:
            noted = RemovedPages(
                np.fromiter(self._noted.keys(), np.int64), np.fromiter(self._noted.values(), float)
            )
            self._stored = _sorted(joined(self._stored, noted))
            self._noted = {}

    def note_again(self, page_id: int, time: float) -> None:
        """A page is removed that is not there.

        Of pages that never were nothing is kept: anybody may name any number of them.
        """
        if self.of_page(page_id) > NEVER:
            self.note(page_id, time)

    def note_host(self, host: str, time: float) -> None:
        """A host is erased."""
        self._hosts[host_id_of(host)] = max(time, self.of_host(host))

    def forget(self, page_id: int) -> None:
        """A page is there again."""
        self._noted.pop(page_id, None)


def joined(one: RemovedPages, other: RemovedPages) -> RemovedPages:
    """Both, one after the other."""
    return RemovedPages(
        np.concatenate([one.page_ids, other.page_ids]),
        np.concatenate([one.removed_at, other.removed_at]),
    )


def _sorted(pages: RemovedPages) -> RemovedPages:
    """In rising order of ids, the last removal of each."""
    order = np.lexsort((pages.removed_at, pages.page_ids))
    page_ids, removed_at = pages.page_ids[order], pages.removed_at[order]
    is_last = np.append(page_ids[1:] != page_ids[:-1], np.ones(min(page_ids.size, 1), np.bool_))
    return RemovedPages(page_ids[is_last], removed_at[is_last])
