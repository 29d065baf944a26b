"""When pages were removed: updates that are older do not bring them back."""

from typing import Final

import numpy as np

from services.scheduler.state.rows import NEVER
from shared.store.columns import RemovedPages

_MOST_NOTED: Final = 100_000


class Removals:
    """Those of a shard: all that the database has, 16 bytes each, and the latest since."""

    def __init__(self) -> None:
        self._stored = RemovedPages.none()
        self._noted: dict[int, float] = {}

    def load(self, stored: RemovedPages) -> None:
        """Take those that a snapshot has."""
        self._stored = stored

    def of(self, page_id: int) -> float:
        """When a page was last removed, as far as is known; NEVER: it was not."""
        ids = self._stored.page_ids
        place = int(np.searchsorted(ids, page_id))
        is_stored = place < ids.size and ids[place] == page_id
        stored = float(self._stored.removed_at[place]) if is_stored else NEVER
        return max(self._noted.get(page_id, NEVER), stored)

    def note(self, page_id: int, time: float) -> None:
        """A page is removed."""
        if len(self._noted) >= _MOST_NOTED and page_id not in self._noted:
            self._noted.pop(next(iter(self._noted)))
        self._noted[page_id] = max(time, self._noted.get(page_id, NEVER))

    def note_again(self, page_id: int, time: float) -> None:
        """A page is removed that is not there.

        Of pages that never were nothing is kept: anybody may name any number of them.
        """
        if self.of(page_id) > NEVER:
            self.note(page_id, time)

    def forget(self, page_id: int) -> None:
        """A page is there again."""
        self._noted.pop(page_id, None)
