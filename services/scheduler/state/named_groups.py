"""Which group each host of a shard is of, as crawl outcomes name it: 4 bytes a host, and each name
once."""

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.host_names import UNKNOWN, HostNames
from shared.store.reserved import grown

_SMALLEST = 64
NOT_NAMED = -1
"""Place of a group that no outcome names."""


class NamedGroups:
    """The groups of hosts, by the hosts' numbers, and their places among all that there are.

    Who owns a name server makes up as many names as there are hosts, every day. So those of which
    no host is any more are forgotten as soon as they may be as many as all others: there are never
    more than twice as many as hosts, and some.
    """

    def __init__(self) -> None:
        self._names = HostNames()
        self._of: NDArray[np.int32] = np.zeros(_SMALLEST, np.int32)
        """By host: one more than the place of its group."""
        self._room = _SMALLEST

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, host: int) -> str | None:
        place = self.place_of(host)
        return None if place == NOT_NAMED else self._names[place]

    def place_of(self, host: int) -> int:
        """Place of the group of a host, or `NOT_NAMED`."""
        return int(self._of[host]) - 1 if host < self._of.size else NOT_NAMED

    def places_of(self, hosts: NDArray[np.int64]) -> NDArray[np.int64]:
        """The same of some hosts."""
        places = np.full(hosts.size, NOT_NAMED, np.int64)
        known = hosts < self._of.size
        places[known] = self._of[hosts[known]].astype(np.int64) - 1
        return places

    def find(self, name: str) -> int:
        """Place of a group, or `NOT_NAMED`."""
        place = self._names.find(name)
        return NOT_NAMED if place == UNKNOWN else place

    def name_at(self, place: int) -> str:
        """The group at a place."""
        return self._names[place]

    def name(self, host: int, group: str | None) -> bool:
        """A host is of a group, or of none; whether it was of another one."""
        place = NOT_NAMED
        if group is not None:
            place = self.find(group)
            place = self._names.add(group) if place == NOT_NAMED else place
        if host >= self._of.size:
            if place == NOT_NAMED:
                return False
            self._of = grown(self._of, 2 * (host + 1))
        is_other = bool(self._of[host] != place + 1)
        self._of[host] = place + 1
        return is_other

    def forget(self) -> NDArray[np.int64] | None:
        """Forget the groups of which no host is, if they may be many; the places before, of those
        that stay. None: all stay where they are."""
        if len(self._names) < self._room:
            return None
        kept = np.unique(self._of[self._of > 0]) - 1
        places = np.zeros(len(self._names) + 1, np.int32)
        places[kept + 1] = np.arange(1, kept.size + 1)
        self._names, self._of = self._names.some(kept.astype(np.int64)), places[self._of]
        self._room = 2 * kept.size + _SMALLEST
        return kept.astype(np.int64)
