"""What schedulers have in memory, against what the database has."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.flow.loading import build_shard
from services.scheduler.state.batches import MOST_ODDS, evidence_in_batch
from services.verify.checks.finding import Finding
from services.verify.ledger import Ledger
from services.verify.simulation.facts import Facts, url_of
from services.verify.simulation.store.statements import Statements
from shared.contracts.identity import identify
from shared.runtime.abreast import LATE_SECONDS
from shared.store.page_status import ACTIVE, NEVER
from shared.store.source_times import STEPS

_LEARNED_TOLERANCE: Final = 0.12
"""Parameters are said again only when they have changed by a part of this."""

_LEARNED_LATER: Final = 0.5
"""By so much what was learned may have moved since a signal came, relatively."""


class Signalled(NamedTuple):
    """The signals of a page."""

    signals: Sequence[tuple[str, float]]
    """Source and time (Unix seconds)."""
    crawl_written_at: float
    """When its last crawl came to stand on the topic."""


_NEVER_SIGNALLED: Final = Signalled((), NEVER)


def remembered(ledger: Ledger, facts: Facts) -> Finding:
    """What a scheduler has in memory is what the database has, now that all is applied.

    But for what was deleted before an estimator had read it: a scheduler may have. Nor need both
    have taken messages in the same order that were passed on.
    """
    came: dict[str, set[tuple[str, float]]] = defaultdict(set)
    for signal in ledger.page_signals:
        came[signal.url].add((signal.source, signal.observed_at))
    written: dict[str, float] = {}
    for answered in ledger.outcomes:
        url = answered.outcome.url
        written[url] = max(answered.written_at, written.get(url, NEVER))
    about = {
        url: Signalled(tuple(signals), written.get(url, NEVER)) for url, signals in came.items()
    }
    statements = Statements(facts.database)
    told = {url_of(record) or "" for record in facts.passed_over("estimator")} | facts.overtaken
    hosts = {identify(url).host for url in told if url}

    def offenders() -> Iterator[str]:
        for number, shards in sorted(facts.shards.items()):
            for shard in shards:
                snapshot = statements.load_shard("", number)
                fresh = build_shard(snapshot, shard.rules)
                yield from _differences(shard, fresh, told, hosts)
                yield from lost_or_doubled(shard, fresh, snapshot.pending, told, about)

    return Finding.of("memory", "schedulers know what the database knows", offenders())


def _differences(shard: Any, fresh: Any, told: set[str], hosts: set[str]) -> Iterator[str]:
    mine, stored = _by_url(shard), _by_url(fresh)
    for url in sorted(mine.keys() ^ stored.keys()):
        yield f"{url}: {'only in memory' if url in mine else 'not in memory'}"
    for url in sorted((mine.keys() & stored.keys()) - told):
        one, other = mine[url], stored[url]
        for name, tolerance in (_COMPARED if one["status"] == ACTIVE else _COMPARED_AWAY).items():
            if not np.isclose(one[name], other[name], rtol=tolerance, atol=1e-9, equal_nan=True):
                yield f"{url}: {name} is {one[name]} in memory, {other[name]} in the database"
        named, stored_name = _class_of(shard, url), _class_of(fresh, url)
        if named != stored_name:
            yield f"{url}: its class is {named} in memory, {stored_name} in the database"
        host, known = _host_of(shard, one), _host_of(fresh, other)
        for name in ("rate", "blocked_until"):
            if host[name] != known[name] and identify(url).host not in hosts:
                yield f"{url}: its host's {name} is {host[name]}, {known[name]} in the database"


_COMPARED: Final = {
    "last_crawled_at": 0.0,
    "importance": 1e-6,
    "status": 0.0,
    "max_age": 1e-6,
    "kappa": _LEARNED_TOLERANCE,
    "gamma": _LEARNED_TOLERANCE,
}
"""Columns, and by how much they may differ, relatively. α is not among them: a scheduler that hears
of a crawl goes by the burst multipliers that it knows then, the estimator by those that this very
crawl has changed. Nor is what signals count (`lost_or_doubled`)."""


_COMPARED_AWAY: Final = {
    name: tolerance for name, tolerance in _COMPARED.items() if tolerance != _LEARNED_TOLERANCE
}
"""What is learned of a page that is away is not announced before it is back."""


def lost_or_doubled(
    shard: Any,
    fresh: Any,
    pending: NDArray[np.uint16],
    told: set[str],
    about: Mapping[str, Signalled],
) -> Iterator[str]:
    """Pages of which memory has more signals since their last crawls than the database, or fewer.

    What they count is not compared: a batch of signals is worth what crawls of its pages have found
    so far, and whoever loads the shard begins with batches of which nothing is known. But those of
    a page's last batch are counted in memory, and what the others count has bounds.

    Nor is, of a page with several sources, a signal of less than a step before a crawl: times by
    source are kept in steps, rounded up. Who reads the crawl after it takes it for a later one.
    And who reads signals before the crawl after which they came counts one of each source.
    """
    rows = {shard.url_of(row): row for row in range(shard.used)}
    for other in range(fresh.used):
        url = fresh.url_of(other)
        if url in told or url not in rows:
            continue
        of_batch, earlier = _counted(shard, rows[url])
        others = float(pending[other].sum()) - of_batch
        crawled_at = float(fresh.pages[other]["last_crawled_at"]) + fresh.rules.signal_delay
        unsure = _unsure(about.get(url, _NEVER_SIGNALLED), crawled_at)
        fewest, largest = max(others - unsure, 0.0), others + unsure
        least, most = _bounds(shard, rows[url])
        if largest < 0 or not least * fewest <= earlier <= most * largest:
            yield (
                f"{url}: {of_batch:g} signals of a batch in memory, and others that count "
                f"{earlier:g}; {pending[other].tolist()} in the database"
            )


def _unsure(signalled: Signalled, crawled_at: float) -> int:
    """How many signals of a page may count or not: those within a step before its last crawl, and
    of those that were read before it, though they came after it (topics are read that far apart),
    all but one of each source."""
    within_a_step = sum(0.0 < crawled_at - at < 1.0 / STEPS for _, at in signalled.signals)
    until = signalled.crawl_written_at + LATE_SECONDS
    sources = [source for source, at in signalled.signals if crawled_at < at < until]
    return within_a_step + len(sources) - len(set(sources))


def _counted(shard: Any, row: int) -> tuple[float, float]:
    """(signals of a page's last batch, what those before count)."""
    place = shard.signal_times.place_of(row)
    waiting = shard.batches.arrays(shard.signal_times.size).waiting
    if place < 0 or waiting.batches[place] < 0:
        return 0.0, float(shard.pages[row]["signals"])
    return float(waiting.counts[place]), float(waiting.earlier[place])


def _bounds(shard: Any, row: int) -> tuple[float, float]:
    """What a signal of a page may count at least and at most, whatever its batch was worth."""
    page = shard.pages[row]
    kappa = max(float(page["kappa"]), 1e-9)
    counts = [
        evidence_in_batch(kappa * weight, odds) / kappa
        for weight in shard.hosts.learned.tables.weights[page["host"]].tolist()
        for odds in (-MOST_ODDS, 0.0, MOST_ODDS)
    ]
    # Pages' and sources' evidence were others when it came.
    return min(counts) * (1.0 - _LEARNED_LATER), max(counts) * (1.0 + _LEARNED_LATER)


def _by_url(shard: Any) -> dict[str, Any]:
    pages = shard.pages[: shard.used]
    return {shard.url_of(row): pages[row] for row in range(shard.used) if pages[row]["status"] != 1}


def _class_of(shard: Any, url: str) -> str | None:
    row = shard.row_of(identify(url).page_id)
    name: str | None = shard.classes.name_of(int(shard.records[row]["page_class"]))
    return name


def _host_of(shard: Any, page: Any) -> Any:
    return shard.hosts.rows[int(page["host"])]
