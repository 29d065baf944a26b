"""Refits of what hosts say of their pages: when, at what cost, and which hosts and pages moved."""

import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.estimator.application import ShardEffects, by_host_id, by_page_id
from services.estimator.learning import assign, fit, mean_evidence
from services.estimator.shard import Shard
from shared.policy.estimation.bursts import bursts_trusted
from shared.policy.estimation.host_priors import (
    HostPriors,
    HostSums,
    fit_host_priors,
    host_sums,
)
from shared.policy.estimation.light_modes import light_modes
from shared.policy.estimation.map_fit import MapColumns
from shared.policy.estimation.page_factors import (
    PageFactors,
    activity_bins,
    fit_page_factors,
    seen_rings,
)
from shared.policy.estimation.quiet_pages import quiet_beliefs
from shared.rules.sites import sites_of
from shared.store.directories import DIRECTORIES
from shared.store.history import OWN_SOURCES, SOURCES
from shared.store.host_factors import MOST_DIRECTORIES, HostFactors
from shared.units import SECONDS_PER_DAY

FIRST_RECORDS: Final = 100
"""Crawl records at which the priors are first fitted; then each time that they have doubled."""

MOST_TIME: Final = 1 / 40
"""Share of the time that refits may take."""

PUT_OFF_SECONDS: Final = 60.0
"""After a failure no refit is tried for so long: it concerns all shards, and where shards are split
one after the other each would cut it off, and have all of them loaded anew."""

MOST_PAGES: Final = 10_000
"""Pages that follow their hosts' priors in one refit: those with the fewest crawl records. The
others follow when they are crawled; their own records say more than the prior anyway."""

PRIOR_TOLERANCE: Final = 0.01
"""A prior that moves by less, relatively, stays as it was: its host need not be written."""


_NOBODY: Final = ""
"""Name of a host of which nothing is known."""

_FREE, _OTHERS, _FIRST_NAMED = range(3)
"""Numbers of sources of slots."""


class Refits:
    """When the priors of this process's shards are refitted."""

    def __init__(self, every_days: float) -> None:
        self._every_seconds = every_days * SECONDS_PER_DAY
        self._records = FIRST_RECORDS / 2
        self._due_at = -np.inf
        self._not_before = -np.inf

    def are_due(self, shards: Iterable[Shard], now: float) -> bool:
        """Whether enough time has passed, or enough was seen, since the last ones.

        Args:
            shards: all of this process.
            now: clock time, Unix seconds.
        """
        records = sum(shard.records for shard in shards)
        if records < FIRST_RECORDS or time.monotonic() < self._not_before:
            return False
        return now >= self._due_at or records >= 2 * self._records

    def noted(self, shards: Iterable[Shard], now: float, wall_seconds: float) -> None:
        """The priors were refitted and stored, and it took so long."""
        self._records = max(sum(shard.records for shard in shards), FIRST_RECORDS / 2)
        self._due_at = now + self._every_seconds
        self._not_before = time.monotonic() + wall_seconds / MOST_TIME

    def put_off(self) -> None:
        """Something has failed: first what has to be done is done."""
        self._not_before = max(self._not_before, time.monotonic() + PUT_OFF_SECONDS)


@dataclasses.dataclass(frozen=True, slots=True)
class Refitted:
    """What a refit did to a shard; the shard itself has it already."""

    hosts: NDArray[np.int64]
    """Rows of hosts with another prior, or another belief in quiet pages."""
    factored: NDArray[np.int64]
    """Rows of hosts with other factors of their pages."""
    pages: NDArray[np.int64]
    """Rows of pages that followed."""


Refitting = Callable[[Sequence[Shard], float], list[Refitted]]
"""Refits shards, by the relative change that is material."""


def refit(shards: Sequence[Shard], material_change: float) -> list[Refitted]:
    """Refit factors of pages and priors of hosts from their pages, those of the hosts of their
    site, and everything, and let pages follow. Those without a crawl record follow of themselves,
    here and in the schedulers.

    Args:
        shards: all that there are in this process: together they are everything.
        material_change: relative change of a prior that its pages follow, and of a page's
            parameters that is worth writing.
    """
    before = [(shard.hosts.priors, shard.pages["factor"].copy()) for shard in shards]
    factored = [set_factors(shard) for shard in shards]
    priors, newcomer = fitted_priors(
        [sums_of(shard) for shard in shards],
        [shard.hosts.names for shard in shards],
        [shard.hosts.sources for shard in shards],
    )
    moved = [set_priors(shard, mine) for shard, mine in zip(shards, priors, strict=True)]
    others = set_beliefs(shards)
    done = []
    for shard, own, quiet, old, rows in zip(shards, moved, others, before, factored, strict=True):
        shard.hosts.newcomer = newcomer
        pages = shard.pages
        followers = moved_pages(
            pages["host"], old, (shard.hosts.priors, pages["factor"]), material_change
        )
        followers &= shard.rings.seen[: len(pages)] > 0
        chosen = follow(shard, np.flatnonzero(followers), material_change)
        done.append(Refitted(np.flatnonzero(own | quiet), rows, chosen))
    return done


def no_sums(hosts: int) -> HostSums:
    """Of so many hosts without pages."""
    flat, by_source = (hosts,), (hosts, SOURCES)
    return HostSums(
        *np.zeros((3, *flat)),
        *np.zeros((2, *by_source)),
        *np.zeros((2, *flat)),
        *np.zeros((3, *by_source)),
    )


def fitted_priors(
    parts: Sequence[HostSums],
    names: Sequence[Sequence[str]],
    sources: Sequence[Sequence[Sequence[str]]],
) -> tuple[list[HostPriors], HostPriors]:
    """The priors of the hosts of each shard, and that of a host of which nothing is known.

    Args:
        parts: sums over the pages of each shard, by host.
        names: of the hosts of each.
        sources: at each of those hosts, that have a slot of their own.
    """
    joined = HostSums(*map(np.concatenate, zip(*parts, no_sums(1), strict=True)))
    sites = sites_of([name for of_shard in names for name in of_shard] + [_NOBODY])
    slots = sources_of_slots([*itertools.chain.from_iterable(sources), []])
    priors = fit_host_priors(joined, sites, slots)
    ends = np.cumsum([len(of_shard) for of_shard in names])
    return [
        HostPriors(*(column[end - len(of_shard) : end] for column in priors))
        for end, of_shard in zip(ends, names, strict=True)
    ], HostPriors(*(column[-1:] for column in priors))


def sources_of_slots(sources: Sequence[Sequence[str]]) -> NDArray[np.int64]:
    """A number for the source of each slot, (hosts, `SOURCES`): hosts give their slots in the order
    in which their sources came. The slots for all others have one number, and so have free ones."""
    numbers: dict[str, int] = {}
    slots = np.full((len(sources), SOURCES), _FREE, np.int64)
    slots[:, OWN_SOURCES:] = _OTHERS
    for row, names in enumerate(sources):
        for slot, name in enumerate(names[:OWN_SOURCES]):
            slots[row, slot] = numbers.setdefault(name, _FIRST_NAMED + len(numbers))
    return slots


def set_factors(shard: Shard) -> NDArray[np.int64]:
    """Fit what directories and signals say of pages; rows of hosts of which that moved."""
    pages, rings, hosts = shard.pages, shard.rings, shard.hosts
    crawled = np.flatnonzero(rings.seen[: len(pages)] > 0)
    found, covered = np.empty((2, crawled.size))
    priors = hosts.priors
    heard, _ = light_modes(
        crawled,
        rings.interval_days,
        rings.signals,
        rings.changed,
        rings.seen,
        priors.shape[pages["host"]],
        priors.rate[pages["host"]] / pages["factor"],
        pages["unsignalled_change_rate"],
        rings.evidence,
        rings.posterior_shape[: len(pages)],
    )
    seen_rings(
        crawled,
        rings.interval_days,
        rings.signals,
        rings.changed,
        rings.seen,
        heard,
        rings.evidence,
        found,
        covered,
    )
    of_crawled = pages[crawled]
    keys, group = np.unique(
        of_crawled["host"] * DIRECTORIES + of_crawled["directory"], return_inverse=True
    )
    fitted = fit_page_factors(
        found,
        covered,
        np.ascontiguousarray(of_crawled["host"]),
        group,
        activity_bins(np.ascontiguousarray(of_crawled["signal_count"])),
        priors.shape,
        priors.rate,
        keys.size,
    )
    # Signals that prove nothing of changes prove nothing of how often a page changes, either.
    learning = hosts.learning
    fitted.activity[~bursts_trusted(learning.signals, learning.precision)[: len(hosts.names)]] = 1.0
    none = HostFactors.none()
    new = {}
    rows = np.unique(of_crawled["host"])
    begins, ends = (np.searchsorted(keys, first * DIRECTORIES) for first in (rows, rows + 1))
    for row, begin, end in zip(rows.tolist(), begins.tolist(), ends.tolist(), strict=True):
        factors = _kept(fitted, keys, row, slice(begin, end))
        if factors.is_beyond(hosts.factors.get(row, none), PRIOR_TOLERANCE):
            new[row] = factors
    hosts.set_factors(new)
    if new:
        pages["factor"] = hosts.factors_of(pages)
    return np.array(sorted(new), np.int64)


def _kept(fitted: PageFactors, keys: NDArray[np.int64], row: int, of_host: slice) -> HostFactors:
    """What is kept of a host's factors: directories that differ, those of which most was seen."""
    factors = fitted.directories[of_host]
    chosen = np.flatnonzero(np.abs(factors - 1.0) > PRIOR_TOLERANCE)
    if chosen.size > MOST_DIRECTORIES:
        weights = fitted.weights[of_host][chosen]
        most = np.argsort(-weights, kind="stable")[:MOST_DIRECTORIES]
        chosen = np.sort(chosen[most])
    directories = keys[of_host][chosen] % DIRECTORIES
    return HostFactors(fitted.activity[row], directories.astype(np.uint16), factors[chosen])


Beliefs = tuple[HostPriors, NDArray[np.float64]]
"""Priors of hosts, by row, and the factors of pages."""


def moved_pages(
    host: NDArray[np.int64], before: Beliefs, after: Beliefs, material_change: float
) -> NDArray[np.bool_]:
    """Which pages, each with its host's row, have another prior, by more than so much."""
    (old, old_factor), (new, new_factor) = before, after
    beyond = _is_beyond(new._replace(rate=old.rate), old, material_change)[host]
    rate = old.rate[host] / old_factor
    moved = np.abs(new.rate[host] / new_factor - rate) > material_change * rate
    return np.asarray(beyond | moved)


def sums_of(shard: Shard) -> HostSums:
    """What the pages of a shard say of their hosts, by row."""
    pages, rings = shard.pages, shard.rings
    return host_sums(
        np.flatnonzero(rings.seen[: len(pages)] > 0),
        np.ascontiguousarray(pages["host"]),
        len(shard.hosts.names),
        np.ascontiguousarray(pages["unsignalled_change_rate"]),
        rings.evidence[: len(pages)],
        rings.posterior_shape[: len(pages)],
        rings.interval_days[: len(pages)],
        rings.signals[: len(pages)],
        rings.changed[: len(pages)],
        rings.seen[: len(pages)],
        shard.hosts.priors,
        np.ascontiguousarray(pages["factor"]),
    )


def _is_beyond(new: HostPriors, old: HostPriors, tolerance: float) -> NDArray[np.bool_]:
    """Whether a prior is another, by more than so much."""

    def differs(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
        return np.abs(one - other) > tolerance * other

    rates = differs(new.shape, old.shape) | differs(new.rate, old.rate)
    return np.asarray(rates | differs(new.precision, old.precision).any(axis=1))


def set_priors(shard: Shard, priors: HostPriors) -> NDArray[np.bool_]:
    """Give the first hosts their priors; which of them moved."""
    hosts = shard.hosts
    known = HostPriors(*(column[: priors.shape.size] for column in hosts.priors))
    moved = _is_beyond(priors, known, PRIOR_TOLERANCE)
    rows = np.flatnonzero(moved)
    hosts.records["prior_shape"][rows] = priors.shape[rows]
    hosts.records["prior_rate"][rows] = priors.rate[rows]
    hosts.learning.precision[rows] = priors.precision[rows]
    return moved


def set_beliefs(shards: Sequence[Shard]) -> list[NDArray[np.bool_]]:
    """Refit what is believed of quiet pages, from what all shards of this process have counted.

    Schedulers hear of it with the hosts, and so do their pages.

    Returns:
        of which hosts of each shard it moved.
    """
    counts = [len(shard.hosts.names) for shard in shards]
    records = np.concatenate(
        [shard.hosts.records[:n] for shard, n in zip(shards, counts, strict=True)]
    )
    learning = [shard.hosts.learning for shard in shards]
    beliefs = quiet_beliefs(
        np.ascontiguousarray(records["quiet_found"]),
        np.ascontiguousarray(records["quiet_predicted"]),
        np.concatenate([of.signals[:n] for of, n in zip(learning, counts, strict=True)]),
        np.concatenate([of.precision[:n] for of, n in zip(learning, counts, strict=True)]),
        sites_of([name for shard in shards for name in shard.hosts.names]),
    )
    before = records["quiet_belief"]
    beyond = np.abs(beliefs - before) > PRIOR_TOLERANCE * before
    ends = np.cumsum(counts)[:-1]
    parts = np.split(beyond, ends)
    for shard, new, moved in zip(shards, np.split(beliefs, ends), parts, strict=True):
        rows = np.flatnonzero(moved)
        shard.hosts.records["quiet_belief"][rows] = new[rows]
    return parts


def follow(shard: Shard, rows: NDArray[np.int64], material_change: float) -> NDArray[np.int64]:
    """Fit pages of another prior anew; rows of those whose parameters changed materially."""
    pages = shard.pages
    seen = shard.rings.seen[: len(pages)]
    if rows.size > MOST_PAGES:
        rows = np.sort(rows[np.argpartition(seen[rows], MOST_PAGES)[:MOST_PAGES]])
    fitted = fit(shard, rows)
    evidence = mean_evidence(shard, rows, fitted.signal_evidence)
    changed = np.zeros(rows.size, np.bool_)
    for name, new in (
        ("unsignalled_change_rate", fitted.unsignalled_change_rate),
        ("signal_evidence", evidence),
    ):
        old = pages[name][rows]
        changed |= np.abs(new - old) > material_change * old
    chosen = rows[changed]
    assign(shard, chosen, MapColumns(*(column[changed] for column in fitted)))
    pages["signal_evidence"][chosen] = evidence[changed]
    return chosen


def merged(
    done: Mapping[int, ShardEffects], shards: Sequence[Shard], refitted: Sequence[Refitted]
) -> list[ShardEffects]:
    """The effects of a batch and of a refit after it, in rising order of shards.

    Args:
        done: shard → effects of the batch.
        shards: that were refitted.
        refitted: what the refit did to each.
    """
    both = dict(done)
    for shard, part in zip(shards, refitted, strict=True):
        if not (part.hosts.size or part.factored.size or part.pages.size):
            continue
        effects = both.get(shard.number) or ShardEffects.nothing(shard)
        touched = np.setdiff1d(np.union1d(effects.touched, part.pages), effects.added)
        both[shard.number] = dataclasses.replace(
            effects,
            touched=by_page_id(shard, touched),
            counted_hosts=by_host_id(
                shard,
                np.unique(np.concatenate([effects.counted_hosts, part.hosts, part.factored])),
            ),
            factored=by_host_id(shard, part.factored),
        )
    return [both[number] for number in sorted(both)]
