"""Lines in which hosts wait for the slots of the same groups, by number."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import LINE, NO_HOST, NO_LINE, Rows

_GROUP_BITS: Final = 32
"""A line's groups in one number: that of the domain above that which outcomes name."""


class GroupLines:
    """One line for each two groups that some host is of."""

    def __init__(self) -> None:
        self.rows: Rows = _free(1)
        """By number; the first is for hosts of no group. There may be more than are used."""
        self._numbers: dict[int, int] = {}

    def clear(self) -> None:
        """There is none any more."""
        self.rows = _free(1)
        self._numbers.clear()

    def of(self, groups: NDArray[np.int32], named: NDArray[np.int32]) -> NDArray[np.int32]:
        """The lines of hosts of these groups, by their domains and by what outcomes name."""
        both = groups.astype(np.int64) << _GROUP_BITS | named
        found = np.full(both.size, NO_LINE, np.int32)
        waits = np.flatnonzero(both)
        pairs, places = np.unique(both[waits], return_inverse=True)
        lines = self._numbered(pairs)
        if len(self._numbers) >= self.rows.size:
            before, self.rows = self.rows, _free(2 * (len(self._numbers) + 1))
            self.rows[: before.size] = before
        self.rows["group"][lines] = pairs >> _GROUP_BITS
        self.rows["named"][lines] = pairs & ((1 << _GROUP_BITS) - 1)
        found[waits] = lines[places]
        return found

    def _numbered(self, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Numbers of lines, of which some are new; each once."""
        numbers = self._numbers
        if not numbers:  # there may be one for each host
            lines = np.arange(1, pairs.size + 1)
            numbers.update(zip(pairs.tolist(), lines.tolist(), strict=True))
            return lines
        found = [numbers.setdefault(pair, len(numbers) + 1) for pair in pairs.tolist()]
        return np.array(found, np.int64)


def _free(count: int) -> Rows:
    """So many lines in which nobody is."""
    lines = np.zeros(count, LINE)
    lines["first"] = NO_HOST
    return lines
