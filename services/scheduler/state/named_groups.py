"""Which group each host of a shard is of, as crawl outcomes name it: 4 bytes a host, and each name
once."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.host_names import UNKNOWN, HostNames
from shared.store.reserved import grown

_SMALLEST = 64
_NOT_NAMED = 0


class NamedGroups:
    """The groups of hosts, by the hosts' numbers. Names are never forgotten: a host brings a new
    one once a day at most."""

    def __init__(self) -> None:
        self._names = HostNames()
        self._of: NDArray[np.int32] = np.zeros(_SMALLEST, np.int32)
        """By host: one more than the number of the name; `_NOT_NAMED`."""

    def __getitem__(self, host: int) -> str | None:
        place = int(self._of[host]) if host < self._of.size else _NOT_NAMED
        return None if place == _NOT_NAMED else self._names[place - 1]

    def name(self, host: int, group: str | None) -> bool:
        """A host is of a group, or of none; whether it was of another one."""
        place = _NOT_NAMED
        if group is not None:
            number = self._names.find(group)
            place = 1 + (self._names.add(group) if number == UNKNOWN else number)
        if host >= self._of.size:
            if place == _NOT_NAMED:
                return False
            self._of = grown(self._of, 2 * (host + 1))
        is_other = bool(self._of[host] != place)
        self._of[host] = place
        return is_other
