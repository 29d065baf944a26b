"""How many requests of a host are on their way at once, where operators bound that.

Few hosts have a bound, so what is on its way there is kept by page. The kernels that fill slots
need only know how many more may be made (`HOST`), and count it down; here it is brought up to date,
before slots are filled and after it, and with every answer.

A request is open from its slot until its answer, or its time-out: whoever reads answers late knows
of more that are open than there are, and never of fewer.
"""

import heapq
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.attempts import NO_ATTEMPT, Attempts
from services.scheduler.state.hosts import Hosts, pages_of
from services.scheduler.state.rows import NEVER, Rows
from services.scheduler.state.rules import ShardRules
from services.scheduler.state.selector import Selector

_UNKNOWN: Final = -1

_MEMORY: Final = 0.1
"""Weight of the newest answer in how long answers of a host take."""

_LEAST_SECONDS: Final = 0.01
"""No answer is taken to be faster: clocks differ."""


class _Space(Protocol):
    """What is read of a shard."""

    pages: Rows
    records: Rows
    attempts: Attempts
    hosts: Hosts
    selector: Selector
    rules: ShardRules

    def row_of(self, page_id: int) -> int: ...

    def page_ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]: ...


class OpenRequests:
    """Those of the hosts of a shard that have a bound."""

    def __init__(self, shard: _Space) -> None:
        self._shard = shard
        self._until: dict[int, dict[int, float]] = {}
        """Host → page id → the time-out of its request."""
        self._host_of: dict[int, int] = {}
        """Page id → its host."""
        self._seconds: dict[int, float] = {}
        """Host → how long a request is open, typically."""
        self._ends: list[tuple[float, int]] = []
        """Heap of time-outs and their page ids; those of before stay until they are first."""

    def count(self, host: int) -> int:
        """How many are open of a host with a bound."""
        return len(self._until.get(host, ()))

    def crawl_rates(self) -> NDArray[np.float64]:
        """Crawls per second that each host of the shard can take: where a bound makes requests wait
        for each other, as many as are answered (Little's law)."""
        rates: NDArray[np.float64] = self._shard.hosts.known["rate"]
        if self._seconds:
            rates, most = rates.copy(), self._shard.hosts.known["most_open"]
            for host, seconds in self._seconds.items():
                rates[host] = min(rates[host], most[host] / seconds)
        return rates

    def follow(self, host: int) -> None:
        """The bound of a host is new, or another, or gone."""
        if not self._shard.hosts.rows[host]["most_open"]:
            for page_id in self._until.pop(host, {}):
                del self._host_of[page_id]
            self._seconds.pop(host, None)
        elif host in self._until:
            self._renew(host)
        else:
            self._until[host] = {}
            self._find(host)

    def asked(
        self,
        page_ids: NDArray[np.int64],
        hosts: NDArray[np.int64],
        deadlines: NDArray[np.float64],
    ) -> None:
        """Requests were made, and the kernels have counted them.

        Args:
            page_ids: of each.
            hosts: of each.
            deadlines: until when each waits; `NEVER`: it is answered.
        """
        bounded = np.flatnonzero(self._shard.hosts.rows["most_open"][hosts] > 0)
        for place in bounded.tolist():
            if deadlines[place] > NEVER:
                self._add(int(hosts[place]), int(page_ids[place]), float(deadlines[place]))
        for host in np.unique(hosts[bounded]).tolist():
            self._renew(host)

    def picked(self, rows: NDArray[np.int64]) -> None:
        """The same of pages that were picked, by their rows; -1: none was."""
        if not self._shard.hosts.bounded:
            return  # as most often
        rows, shard = rows[rows >= 0], self._shard
        hosts = shard.pages["host"][rows]
        bounded = shard.hosts.rows["most_open"][hosts] > 0
        if bounded.any():
            rows = rows[bounded]
            deadlines = shard.attempts.rows["deadline"][shard.pages["attempt"][rows]]
            self.asked(shard.page_ids_of(rows), hosts[bounded].astype(np.int64), deadlines)

    def answered(self, page_ids: NDArray[np.int64], crawled_at: NDArray[np.float64]) -> None:
        """Crawls of these pages are known; others may be among them, and older crawls."""
        if not self._host_of:
            return
        timeout, hosts = self._shard.rules.picking.request_timeout, set()
        for page_id, time in zip(page_ids.tolist(), crawled_at.tolist(), strict=True):
            host = self._host_of.get(page_id)
            if host is not None and not self._waits(page_id):
                self._note_seconds(host, time - (self._until[host][page_id] - timeout))
                hosts.add(self._drop(page_id))
        for host in hosts:
            self._renew(host)

    def taken_back(self, page_ids: NDArray[np.int64]) -> None:
        """These pages are not asked for after all; others may be among them."""
        for host in {self._drop(n) for n in page_ids.tolist() if n in self._host_of}:
            self._renew(host)

    def time_out(self, now: float) -> None:
        """The time has come to `now`: what has waited for too long is not open any more."""
        timeout, hosts = self._shard.rules.picking.request_timeout, set()
        while self._ends and self._ends[0][0] <= now:
            until, page_id = heapq.heappop(self._ends)
            host = self._host_of.get(page_id)
            if host is not None and self._until[host][page_id] == until:
                self._note_seconds(host, timeout)
                hosts.add(self._drop(page_id))
        for host in hosts:
            self._renew(host)

    def _find(self, host: int) -> None:
        """Look for what is open at all pages of a host: its bound is new."""
        shard = self._shard
        rows = pages_of(shard.records, shard.hosts.rows, host)
        attempts = shard.pages["attempt"][rows]
        rows, attempts = rows[attempts != NO_ATTEMPT], attempts[attempts != NO_ATTEMPT]
        deadlines = shard.attempts.rows["deadline"][attempts]
        waits = deadlines > NEVER
        page_ids = shard.page_ids_of(rows[waits].astype(np.int64))
        for page_id, until in zip(page_ids.tolist(), deadlines[waits].tolist(), strict=True):
            self._add(host, page_id, until)
        self._renew(host)

    def _waits(self, page_id: int) -> bool:
        """Whether a page is in flight still."""
        row = self._shard.row_of(page_id)
        attempt = NO_ATTEMPT if row == _UNKNOWN else self._shard.pages[row]["attempt"]
        return bool(
            attempt != NO_ATTEMPT and self._shard.attempts.rows[attempt]["deadline"] > NEVER
        )

    def _note_seconds(self, host: int, seconds: float) -> None:
        """A request of a host was open for so long."""
        seconds = max(seconds, _LEAST_SECONDS)
        before = self._seconds.get(host, seconds)
        self._seconds[host] = before + _MEMORY * (seconds - before)

    def _add(self, host: int, page_id: int, until: float) -> None:
        self._until.setdefault(host, {})[page_id] = until
        self._host_of[page_id] = host
        heapq.heappush(self._ends, (until, page_id))

    def _drop(self, page_id: int) -> int:
        host = self._host_of.pop(page_id)
        del self._until[host][page_id]
        return host

    def _renew(self, host: int) -> None:
        """Let the kernels know how many more requests of a host may be made."""
        row, until = self._shard.hosts.rows[host], self._until.setdefault(host, {})
        row["open_left"] = max(int(row["most_open"]) - len(until), 0)
        self._shard.selector.touch_host(host)
