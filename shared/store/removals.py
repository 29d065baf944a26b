"""When pages and hosts were removed or erased: what is older does not bring them back.

The database keeps a page that was removed, and whoever says when it knows it may say any time: an
older update may come in a year. What was erased it forgets after `KEPT_SECONDS`, and so do those
who have it in memory.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.contracts.identity import PageIdentity, host_id_of
from shared.store.columns import RemovedPages
from shared.store.erasing import KEPT_SECONDS
from shared.store.page_status import NEVER

_MOST_NOTED: Final = 100_000
"""Pages that are kept beside the others; then they are put among them."""


class _Times:
    """Pages, and the latest time of each: 16 bytes a page."""

    def __init__(self, stored: RemovedPages) -> None:
        self.stored = _sorted(stored)
        self._noted: dict[int, float] = {}

    def of(self, page_id: int) -> float:
        """The time of a page; NEVER: it has none."""
        ids = self.stored.page_ids
        place = int(np.searchsorted(ids, page_id))
        is_stored = place < ids.size and ids[place] == page_id
        stored = float(self.stored.removed_at[place]) if is_stored else NEVER
        return max(self._noted.get(page_id, NEVER), stored)

    def note(self, page_id: int, time: float) -> bool:
        """A page has a time; whether it was put among the others, with all that were noted."""
        self._noted[page_id] = max(time, self._noted.get(page_id, NEVER))
        if len(self._noted) < _MOST_NOTED:
            return False
        noted = RemovedPages(
            np.fromiter(self._noted.keys(), np.int64), np.fromiter(self._noted.values(), float)
        )
        self.stored = _sorted(_joined(self.stored, noted))
        self._noted = {}
        return True

    def forget(self, page_id: int) -> None:
        """A page has none any more, or one that counts for nothing."""
        self._noted.pop(page_id, None)


class Removals:
    """Those of a shard."""

    def __init__(self) -> None:
        self._erased = _Times(RemovedPages.none())
        self._removed = _Times(RemovedPages.none())
        self._hosts: dict[int, float] = {}

    def load(
        self, erased: RemovedPages, hosts: dict[int, float], removed: RemovedPages | None = None
    ) -> None:
        """Take those that a snapshot has.

        Args:
            erased: pages of which the database keeps nothing else.
            hosts: that are erased, by their ids.
            removed: pages that it keeps; a page may be among both.
        """
        self._erased = _Times(erased)
        self._removed = _Times(RemovedPages.none() if removed is None else removed)
        self._hosts = dict(hosts)

    def of(self, page: PageIdentity) -> float:
        """When a page was last removed, or its host; NEVER: neither was, as far as is known."""
        removed = self.of_page(page.page_id)
        return max(removed, self.of_host(page.host)) if self._hosts else removed

    def of_page(self, page_id: int) -> float:
        """When a page itself was last removed; NEVER: it was not, as far as is known."""
        return max(self._erased.of(page_id), self._removed.of(page_id))

    def of_host(self, host: str) -> float:
        """When a host was last erased; NEVER: it was not, as far as is known."""
        return self._hosts.get(host_id_of(host), NEVER) if self._hosts else NEVER

    def note(self, page_id: int, time: float, *, for_good: bool = True) -> None:
        """A page is removed; `for_good`: it is erased."""
        if not for_good:
            self._removed.note(page_id, time)
            return
        if self._removed.of(page_id) <= time:
            self._removed.forget(page_id)
        if self._erased.note(page_id, time):
            self._forget_old()

    def note_again(self, page_id: int, time: float, *, for_good: bool = True) -> None:
        """A page is removed that is not there.

        Of pages that never were nothing is kept: anybody may name any number of them.
        """
        if self.of_page(page_id) > NEVER:
            self.note(page_id, time, for_good=for_good)

    def note_host(self, host: str, time: float) -> None:
        """A host is erased."""
        self._hosts[host_id_of(host)] = max(time, self.of_host(host))

    def forget(self, page_id: int) -> None:
        """A page is there again."""
        self._erased.forget(page_id)
        self._removed.forget(page_id)

    def _forget_old(self) -> None:
        """Forget what was erased so long before what was erased last that the database forgets it;
        and of what was removed, what was erased afterwards."""
        erased, removed = self._erased.stored, self._removed.stored
        if removed.page_ids.size:
            # Few are erased of the many that were removed.
            places = np.searchsorted(removed.page_ids, erased.page_ids) % removed.page_ids.size
            is_same = removed.page_ids[places] == erased.page_ids
            is_later = erased.removed_at >= removed.removed_at[places]
            is_kept = np.ones(removed.page_ids.size, np.bool_)
            is_kept[places[is_same & is_later]] = False
            self._removed.stored = _chosen(removed, is_kept)
        earliest = erased.removed_at.max(initial=NEVER) - KEPT_SECONDS
        self._erased.stored = _chosen(erased, erased.removed_at >= earliest)
        self._hosts = {host: time for host, time in self._hosts.items() if time >= earliest}


def _chosen(pages: RemovedPages, is_chosen: NDArray[np.bool_]) -> RemovedPages:
    return RemovedPages(pages.page_ids[is_chosen], pages.removed_at[is_chosen])


def _joined(one: RemovedPages, other: RemovedPages) -> RemovedPages:
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
