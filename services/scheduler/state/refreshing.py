"""Bringing pages up to date with what was learned of their hosts: of large hosts some at a time."""

from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.changes import Changes
from services.scheduler.state.groups import HostGroups
from services.scheduler.state.hosts import NO_PAGE, Hosts, rows_from
from services.scheduler.state.learned_hosts import refresh_pages
from services.scheduler.state.rows import Rows
from services.scheduler.state.selector import Selector
from shared.contracts.messages import HostParameters

_ALL: Final = 1 << 62


class _Space(Protocol):
    """What is read of a shard, and changed."""

    hosts: Hosts
    groups: HostGroups
    pages: Rows
    records: Rows
    selector: Selector
    changes: Changes


class HostRefreshes:
    """Hosts whose pages have yet to be brought up to date. What was learned of them holds at once
    for all that happens to a page."""

    def __init__(self, shard: _Space) -> None:
        self._shard = shard
        self._waiting: dict[int, None] = {}
        self._row, self._left = NO_PAGE, 0
        """Where it goes on with the first of them, and with how many pages; 0: it is to begin."""

    def take(self, messages: Sequence[HostParameters]) -> None:
        """Take what was learned of hosts, whose pages are to be brought up to date (`go_on`)."""
        if not messages:
            return
        hosts = self._shard.hosts
        numbers = [hosts.intern(message.host) for message in messages]
        hosts.learned.take(numbers, messages)
        for number, message in zip(numbers, messages, strict=True):
            if message.group is not None:
                self._shard.groups.name(number, message.group)
            self.restart(number)
            self._waiting[number] = None

    def restart(self, host: int) -> None:
        """Begin anew with a host, if that is where it goes on: its list is another one."""
        if self._left and next(iter(self._waiting)) == host:
            self._left = 0

    def go_on(self, most: int = _ALL) -> bool:
        """Bring so many pages up to date; whether others are left."""
        if not self._waiting:
            return False  # as after nearly each step of a batch
        shard, rows = self._shard, self._next(most)
        moved = refresh_pages(shard.pages, shard.records, shard.hosts.learned.tables, rows)
        shard.selector.touch(moved)
        shard.changes.learned += moved.size
        return bool(self._waiting)

    def _next(self, most: int) -> NDArray[np.int32]:
        found = []
        while self._waiting and most > 0:
            host = next(iter(self._waiting))
            if not self._left:
                of = self._shard.hosts.rows[host]
                self._row, self._left = int(of["first_page"]), int(of["pages"] + of["removed"])
            count = min(self._left, most)
            rows, self._row = rows_from(self._shard.records, self._row, count)
            found.append(rows)
            most -= count
            self._left -= count
            if not self._left:
                del self._waiting[host]
        return np.concatenate(found)
