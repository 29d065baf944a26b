"""What picks the pages of a shard, as the shard and its users see it (see `picking.calendar`)."""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import Rows


class Weighed(NamedTuple):
    """Pages at one time, and what each stands for; (pages,) each."""

    rows: NDArray[np.int64]
    priorities: NDArray[np.float64]
    """Host limits aside."""
    pages_each: NDArray[np.float64]
    """Pages of its host like it, itself among them."""
    hosts_each: NDArray[np.float64]
    """Hosts like its own, that one among them."""


class Selector(Protocol):
    """Told of all that happens to pages and hosts, and asked which pages are to be crawled."""

    rebuilds: int
    """Looks at all pages at once."""
    sweeps: int
    """Times that all pages were placed anew, in slices."""
    uncertain_picks: int
    """Picks that are not known to be what a look at all pages would pick."""

    @property
    def guard(self) -> float:
        """Pages that are not looked at are worth less."""
        ...

    @property
    def candidates(self) -> int:
        """How many pages are looked at when slots are filled."""
        ...

    @property
    def calendar_bytes(self) -> int:
        """Memory of the calendar."""
        ...

    def prepare(self, now: float) -> None:
        """Look at all pages before slots are to be filled, and before anybody else has the shard.

        Args:
            now: clock seconds; no slot comes before.
        """
        ...

    def share_work(self, shards: int, place: int = 0) -> None:
        """So many shards share a thread: each does only its part of what may wait at a tick, and
        not at the same ticks as those of other places."""
        ...

    def touch(self, rows: NDArray[np.int32], *, reweigh: bool = False) -> None:
        """Something happened to these pages; `reweigh`: what may change their tiers, too."""
        ...

    def forget(self, row: int) -> None:
        """The page in a row is removed: the row may become another page's, of another host."""
        ...

    def touch_host(self, number: int) -> None:
        """The limit of a host has changed, or it is of other groups."""
        ...

    def touch_hosts(self, numbers: NDArray[np.int64]) -> None:
        """The same of many hosts."""
        ...

    def touch_lines(self) -> None:
        """The limits of groups have changed, or the shard's parts of them."""
        ...

    def empty_lines(self) -> None:
        """There will be other lines; `touch_hosts` follows for all hosts that are of any."""
        ...

    def select(self, slots: NDArray[np.float64], rate: float, least: float) -> Rows:
        """Fill slots: a `PICK` for each, which takes the page and its host's token.

        Args:
            slots: times, rising.
            rate: slots per clock second to expect from now on.
            least: crawl value below which a slot is left empty; 0: never.
        """
        ...

    def weigh(self, now: float, horizon: float, most: int) -> Weighed:
        """Pages that tell what is to be crawled soon, at a bounded cost.

        Args:
            now: clock seconds.
            horizon: clock seconds from now in which they are to be crawled.
            most: about so many pages.
        """
        ...
