"""Refits of shards that are not whole: their pages are looked through in the database.

Some hosts at a time, beside the batches, with a connection of its own: so memory does not grow with
the pages, but with those of the largest host. It rests most of the time, as crawls go on meanwhile,
and the server and this process are theirs. What it comes to is what a refit in memory comes to
(`refitting`) on what was committed when each shard was looked at; it is taken with the next batch,
and stored in its transaction, once all shards were looked at. A shard that was loaded anew since is
looked at again, and no other: where some shard is in trouble every hour, refits come nevertheless.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import psycopg
import structlog
from numpy.typing import NDArray

from services.estimator.hosts import Hosts
from services.estimator.passing import reason
from services.estimator.refitting import (
    MOST_PAGES,
    Refitted,
    Refitting,
    fitted_priors,
    follow,
    moved_pages,
    no_sums,
    set_beliefs,
    set_factors,
    set_priors,
    sums_of,
)
from services.estimator.shard import Shard
from shared.policy.estimation.host_priors import HostPriors, HostSums
from shared.store.history import BadHistory
from shared.store.host_factors import HostFactors
from shared.store.learned_pages import crawled_pages
from shared.store.page_parts import DamagedStore

log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 60.0
"""After a survey that failed."""

SHARE_OF_TIME: Final = 1 / 4
"""That a survey may work for, of the wall."""

_MOST_CANDIDATES: Final = 1_000_000
"""Pages that are noted as those that may have to follow; those with the fewest crawl records."""


class Candidates(NamedTuple):
    """Pages with crawl records, one element a page."""

    page_ids: NDArray[np.int64]
    hosts: NDArray[np.int64]
    """Rows."""
    records: NDArray[np.int32]
    before: NDArray[np.float64]
    """Their factors before the refit."""
    after: NDArray[np.float64]

    def chosen(self, places: NDArray[np.int64]) -> "Candidates":
        """Some of them."""
        columns: Any = (column[places] for column in self)
        return Candidates(*columns)


class Looked(NamedTuple):
    """What a survey has found in a shard."""

    epoch: int
    """Of the shard's owner."""
    newcomer: HostPriors
    """Prior of hosts of which nothing was known then; each refit makes another."""
    names: list[str]
    """Of its hosts then; those that came later have later rows."""
    sums: HostSums
    factors: dict[int, HostFactors]
    """By row, of the hosts of whose pages the factors moved."""
    candidates: Candidates

    def holds_of(self, shard: Shard) -> bool:
        """Whether rows are still what they were, and priors and factors those it started from."""
        return self.epoch == shard.epoch and self.newcomer is shard.hosts.newcomer


class Rests:
    """What keeps a survey from working for more than a share of the time.

    To be called after each piece of work, in the thread that does it.
    """

    def __init__(
        self,
        share: float = SHARE_OF_TIME,
        clock: Callable[[], float] = time.monotonic,
        rest: Callable[[float], bool] | None = None,
    ) -> None:
        """Begin to work.

        Args:
            share: of the time, that is worked for.
            clock: seconds.
            rest: for so many seconds; whether it was ended early.
        """
        self._ended = threading.Event()
        self._share, self._clock, self._rest = share, clock, rest or self._ended.wait
        self._since = clock()
        self.worked = 0.0
        """Seconds."""

    def __call__(self) -> None:
        """Rest for as long as the work since the last rest calls for.

        Raises:
            GivenUp: the survey is not wanted any more.
        """
        worked = max(self._clock() - self._since, 0.0)
        self.worked += worked
        if self._rest(worked * (1.0 / self._share - 1.0)):
            raise GivenUp
        self._since = self._clock()

    def end(self) -> None:
        """The survey is not wanted any more; in any thread."""
        self._ended.set()


class GivenUp(Exception):
    """A survey is not wanted any more."""


class Survey:
    """One at a time."""

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url
        self._task: asyncio.Task[None] | None = None
        self._found: dict[int, Looked] = {}
        self._failed_at = -np.inf
        self._rests = Rests()
        self.seconds = 0.0
        """Of the wall, that was worked for what was found last."""

    def taken_or_begun(self, shards: Mapping[int, Shard]) -> Refitting | None:
        """What does to shards what was found; None: it is not known yet, and is looked for."""
        if self._is_done(shards):
            return self.take
        self.begin(shards)
        return None

    def begin(self, shards: Mapping[int, Shard]) -> None:
        """Begin with what is still to be looked at, unless a survey is under way; its hosts are as
        they are now."""
        if self._task is not None or time.monotonic() < self._failed_at + AGAIN_SECONDS:
            return
        if not self._found:
            self.seconds = 0.0
        frozen = {
            number: (shard.epoch, shard.hosts.frozen())
            for number, shard in shards.items()
            if number not in self._found
        }
        self._task = asyncio.create_task(self._run(frozen))

    def _is_done(self, shards: Mapping[int, Shard]) -> bool:
        """Whether all of these shards were looked at, as they are by now; what does not hold any
        more is forgotten, and what was found of others."""
        if self._task is not None:
            return False
        self._found = {
            number: looked
            for number, looked in self._found.items()
            if number in shards and looked.holds_of(shards[number])
        }
        return self._found.keys() == shards.keys()

    def take(self, shards: Sequence[Shard], material_change: float) -> list[Refitted]:
        """Do to shards what was found, which is forgotten (see `refitting.refit`)."""
        found, self._found = self._found, {}
        return take([found[shard.number] for shard in shards], shards, material_change)

    def close(self) -> None:
        """Stop what is under way."""
        self._rests.end()
        if self._task is not None:
            self._task.cancel()

    async def _run(self, frozen: dict[int, tuple[int, Hosts]]) -> None:
        self._rests = Rests()
        try:
            while frozen:
                number, (epoch, hosts) = frozen.popitem()
                self._found[number] = await asyncio.to_thread(
                    look_over, self._database_url, number, epoch, hosts, self._rests
                )
        except (psycopg.Error, DamagedStore, BadHistory) as error:
            self._failed_at = time.monotonic()
            log.warning("pages cannot be looked through", reason=reason(error))
        finally:
            self.seconds += self._rests.worked
            self._task = None


def look_over(
    database_url: str,
    number: int,
    epoch: int,
    hosts: Hosts,
    rests: Callable[[], None] = lambda: None,
) -> Looked:
    """Look through the pages of a shard.

    Args:
        database_url: libpq URL.
        number: of the shard.
        epoch: of its owner.
        hosts: as they were; their factors become the new ones.
        rests: called after each piece of work; what it raises ends the survey.

    Raises:
        psycopg.OperationalError: the server went away.
    """
    sums, moved, candidates = no_sums(len(hosts.names)), set[int](), list[Candidates]()
    for found in crawled_pages(database_url, number, rests):
        part = Shard(number)
        part.hosts = hosts
        # Hosts may have come since, whose pages have been crawled: they are for the next time.
        is_of_then = hosts.knows(found.pages.host_ids)
        part.take_in(found if is_of_then.all() else found.chosen(is_of_then))
        before = part.pages["factor"].copy()
        moved |= set(set_factors(part).tolist())
        sums = HostSums(*(a + b for a, b in zip(sums, sums_of(part), strict=True)))
        candidates.append(
            Candidates(
                part.pages["page_id"].copy(),
                part.pages["host"].copy(),
                part.rings.seen[: len(part.pages)].copy(),
                before,
                part.pages["factor"].copy(),
            )
        )
        candidates = [_fewest(candidates, max(_MOST_CANDIDATES // 64, MOST_PAGES))]
    factors = {row: hosts.factors[row] for row in moved}
    return Looked(epoch, hosts.newcomer, list(hosts.names), sums, factors, candidates[0])


def _fewest(parts: Sequence[Candidates], most: int) -> Candidates:
    """Those with the fewest crawl records."""
    joined = Candidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return joined.chosen(_places_of_fewest(joined.records, most))


def _places_of_fewest(records: NDArray[np.int32], most: int) -> NDArray[np.int64]:
    if records.size <= most:
        return np.arange(records.size)
    return np.sort(np.argpartition(records, most)[:most])


def take(
    found: Sequence[Looked], shards: Sequence[Shard], material_change: float
) -> list[Refitted]:
    """Do to shards what was found in them.

    Args:
        found: in each of the shards.
        shards: all of this process.
        material_change: see `refitting.refit`.
    """
    priors, newcomer = fitted_priors(
        [part.sums for part in found],
        [part.names for part in found],
        # A slot stays its source's; those that were given since have nothing in the sums.
        [shard.hosts.sources[: len(part.names)] for shard, part in zip(shards, found, strict=True)],
    )
    moved = []
    for shard, part, own in zip(shards, found, priors, strict=True):
        count = len(part.names)
        before = HostPriors(*(column[:count] for column in shard.hosts.priors))
        shard.hosts.set_factors(part.factors)
        if part.factors:
            shard.pages["factor"] = shard.hosts.factors_of(shard.pages)
        rows = set_priors(shard, own)
        shard.hosts.newcomer = newcomer
        after = HostPriors(*(column[:count] for column in shard.hosts.priors))
        theirs = part.candidates
        others = moved_pages(
            theirs.hosts, (before, theirs.before), (after, theirs.after), material_change
        )
        moved.append((rows, theirs.chosen(np.flatnonzero(others))))
    # What is counted of quiet pages is of now: it stands with the hosts, which are all here.
    hosts = [
        np.union1d(np.flatnonzero(rows), np.flatnonzero(quiet))
        for (rows, _), quiet in zip(moved, set_beliefs(shards), strict=True)
    ]
    candidates = [theirs for _, theirs in moved]
    return _followed(found, shards, list(zip(hosts, candidates, strict=True)), material_change)


def _followed(
    found: Sequence[Looked],
    shards: Sequence[Shard],
    moved: Sequence[tuple[NDArray[np.int64], Candidates]],
    material_change: float,
) -> list[Refitted]:
    """Let pages follow, those with the fewest records of all shards."""
    ends = np.cumsum([candidates.records.size for _, candidates in moved])
    chosen = _places_of_fewest(
        np.concatenate([candidates.records for _, candidates in moved]), MOST_PAGES
    )
    done = []
    for shard, part, end, (hosts, candidates) in zip(shards, found, ends, moved, strict=True):
        begin = end - candidates.records.size
        mine = chosen[(chosen >= begin) & (chosen < end)] - begin
        rows = shard.rows_of(candidates.page_ids[mine])
        # They may have been erased meanwhile.
        rows = np.sort(rows[rows >= 0])
        pages = follow(shard, rows[shard.rings.seen[rows] > 0], material_change)
        factored = np.array(sorted(part.factors), np.int64)
        done.append(Refitted(hosts, factored, pages))
    return done
