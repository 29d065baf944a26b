"""The promises, checked on what a simulation left behind: those of `services.verify.checks` where
they can be asked of it, and those that need the truth or the workers' memory."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from services.verify.checks import delivery, limits, requests
from services.verify.checks.downtime import Downtimes
from services.verify.checks.finding import Finding
from services.verify.group_news import named_since
from services.verify.ledger import Ledger
from services.verify.records import decoded
from services.verify.simulation.arriving import signals_arrived
from services.verify.simulation.asking import asked_again, crawls_in_a_row
from services.verify.simulation.budgets import budgets, in_time
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.counting import (
    counted_of,
    late_crawls,
    ledger_of,
    reference_of,
    sure_of,
)
from services.verify.simulation.facts import Facts, url_of
from services.verify.simulation.learned import learned
from services.verify.simulation.memory import remembered
from services.verify.simulation.passed_on import overtaken
from services.verify.simulation.reference import PageRecord
from shared.contracts.messages import Multipliers
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    CRAWL_REQUESTS,
    DEAD_LETTERS,
    HOST_LIMITS,
    MULTIPLIERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    SIGNALS,
)
from shared.pacing.slots import SlotTimeline
from shared.runtime.dead_letters import Letter
from shared.runtime.kafka import appended_at
from shared.store.positions import ESTIMATOR

LEARNED: Final = (PAGE_SIGNALS, CRAWL_OUTCOMES, PAGE_UPDATES, HOST_LIMITS)

_SURELY_READ: Final = frozenset(topic.name for topic in (*LEARNED, SIGNALS))
"""Topics of which no message may be left out, a bad one neither."""


def check(facts: Facts) -> list[Finding]:
    """All checks."""
    ledger = ledger_of(facts)
    counted = counted_of(facts) if facts.database.splits else ledger
    facts.overtaken = overtaken(facts) if facts.database.splits else set()
    facts.overtaken |= late_crawls(ledger)
    reference = reference_of(counted, facts)
    return [
        Finding.of(
            "ready",
            "all workers are ready at the end",
            [f"{name}: {why}" for name, why in sorted(facts.not_ready.items())],
        ),
        _at_rest(facts),
        _stopped(facts),
        _gone(facts),
        *delivery.crawls_applied(sure_of(counted, facts), {}),
        _learned(facts, reference),
        _observed(facts, reference),
        _stored(facts),
        signals_arrived(ledger, facts),
        _letters(ledger, facts),
        requests.in_flight_twice(ledger),
        requests.right_partitions(ledger),
        _slots(ledger, facts),
        in_time(ledger, facts.plan),
        *budgets(ledger, facts, _plan(ledger)),
        facts.looks.finding(),
        facts.loads.finding(),
        learned(facts),
        limits.hosts(ledger, facts.truth.host_limits),
        limits.groups(ledger, facts.truth.group_limits, _at_addresses(facts, ledger)),
        limits.groups_by_arrival(
            ledger, facts.truth.group_limits, _held_up(facts), _at_addresses(facts, ledger)
        ),
        _named(facts),
        requests.open_at_once(ledger, facts.truth.open_bounds),
        *asked_again(ledger, facts, _plan(ledger)),
        *crawls_in_a_row(ledger, facts),
        _owned_once(facts),
        _held(facts),
        _grown(facts),
        remembered(ledger, facts),
        *_modelled_well(facts),
    ]


def _modelled_well(facts: Facts) -> Iterator[Finding]:
    """PostgreSQL, where it ran beside its model, has come to the same."""
    if facts.differences is not None:
        yield Finding.of("postgres", "PostgreSQL does what its model does", facts.differences)


def _at_rest(facts: Facts) -> Finding:
    """Every position has reached the end of its partition."""

    def behind() -> Iterator[str]:
        for topic in LEARNED:
            for log in facts.broker.topics[topic.name]:
                at = facts.database.positions.get((ESTIMATOR, topic.name, log.number), 0)
                last = log.records[-1].offset + 1 if log.records else 0
                if not last <= at <= log.end:
                    yield f"{topic.name}/{log.number}: at {at}, the last record ends at {last}"

    return Finding.of("rest", "everything is applied in the end, and nothing beyond", behind())


def _stopped(facts: Facts) -> Finding:
    """Nobody goes on where the log does not continue what was read of it."""
    offenders = [
        f"{broken.topic} at {broken.at:.3f}: nobody has stopped"
        for broken in facts.truth.breaks
        if not broken.noticed_by
    ]
    what = "workers stop before a topic that lost what they had read"
    return Finding.of("stopped", what, offenders, breaks=len(facts.truth.breaks))


def _gone(facts: Facts) -> Finding:
    """Nobody says of records that are there that they are gone."""
    offenders = [
        f"{gap.topic}/{gap.partition} at {gap.offset}, says a {gap.reader}"
        for gap in sorted(facts.gaps)
        if gap.offset >= facts.broker.partition(gap.topic, gap.partition).begin
    ]
    return Finding.of("gaps", "what is said to be gone is gone", offenders, gaps=len(facts.gaps))


def _learned(facts: Facts, reference: dict[str, PageRecord]) -> Finding:
    """Pages in the database are what the events come to."""

    def offenders() -> Iterator[str]:
        stored = {
            facts.database.urls[shard, page_id]: row
            for shard, rows in facts.database.pages.items()
            for page_id, row in rows.items()
        }
        unsure = facts.unsure()
        for url in sorted((stored.keys() ^ reference.keys()) - unsure):
            yield f"{url}: {'not wanted' if url in stored else 'not there'}"
        for url in sorted((stored.keys() & reference.keys()) - unsure):
            row, page = stored[url], reference[url]
            expected = {
                "crawls": page.crawls,
                "changes": page.changes,
                "failures": page.failures,
                "last_crawled_at": page.last_crawled_at,
                "last_attempt_at": page.last_attempt_at,
                "importance": page.importance,
                "misses": page.misses,
                "class": page.page_class,
            }
            named = facts.database.classes.get(row["shard"], {}).get(row["page_class"], "")
            for name, value in expected.items():
                if (has := (row | {"class": named})[name]) != value:
                    yield f"{url}: {name} is {has}, not {value}"
            if row["status"] not in page.statuses:
                yield f"{url}: its status is {row['status']}, none of {sorted(page.statuses)}"
            if not page.least_signals <= row["signal_count"] <= page.most_signals:
                yield (
                    f"{url}: {row['signal_count']} signals counted, not {page.least_signals} to "
                    f"{page.most_signals}"
                )

    return Finding.of("pages", "each event counts once", offenders(), pages=len(reference))


def _observed(facts: Facts, reference: dict[str, PageRecord]) -> Finding:
    """Crawl records in the database are those that the events come to."""
    urls, unsure = facts.database.urls, facts.unsure()
    actual = Counter(
        (urls[shard, page_id], at, changed)
        for shard, page_id, at, _, _, changed in facts.database.observations
        # Operators delete those of pages that are erased.
        if (shard, page_id) in urls and urls[shard, page_id] not in unsure
    )
    expected = Counter(
        (page.url, at, changed)
        for page in reference.values()
        for at, _, changed in page.observations
        if page.url not in unsure
    )
    lost = [f"not there: {one}" for one in sorted((expected - actual).elements())]
    doubled = [f"too often: {one}" for one in sorted((actual - expected).elements())]
    what = "each crawl is recorded once"
    return Finding.of("crawl records", what, lost + doubled, records=expected.total())


def _stored(facts: Facts) -> Finding:
    """Each commit is the owner's, and tells how far was read."""
    what = "shards are stored by their owners, and crawl records with how far was read"
    commits = facts.database.commits
    return Finding.of("stored", what, commits.wrong, commits=commits.count)


def _letters(ledger: Ledger, facts: Facts) -> Finding:
    """Dead letters are the bad messages, and all of them."""
    letters = [
        letter for letter in map(Letter.read, ledger.raw[DEAD_LETTERS.name]) if letter is not None
    ]
    found = {(one.topic, one.partition, one.original_offset) for one in letters}
    # What is said of a page that was lost, or comes later, is about none that is known.
    excused = facts.truth.once_bad | facts.places_about(facts.truth.unsure | facts.overtaken)
    wrong = [
        f"{one.topic}/{one.partition} at {one.original_offset}: {one.error}"
        for one in letters
        if (one.topic, one.partition, one.original_offset) not in facts.truth.bad | excused
    ]
    missing = [
        f"{place}: no letter"
        for place in sorted(facts.truth.bad - found - {gap[1:] for gap in facts.gaps})
        if place[0] in _SURELY_READ
    ]
    what = "dead letters are the bad messages, no others, and all of them"
    return Finding.of("dead letters", what, wrong + missing, letters=len(letters))


def _plan(ledger: Ledger) -> SlotTimeline:
    """The plans that hold, as everybody must have read them."""
    timeline = SlotTimeline()
    for record, message in decoded(Multipliers, ledger.raw[MULTIPLIERS.name]):
        timeline.take(message, appended_at(record))
    return timeline


def _slots(ledger: Ledger, facts: Facts) -> Finding:
    """Each request fills a slot of its shard; each slot is filled once, over all shards."""
    timeline = _plan(ledger)
    owners: dict[int, int] = {}
    for second in range(-2, int(facts.ended_at) + 3):
        begin = BEGINNING + second
        times, whose = timeline.between(begin, begin + 1.0)
        owners.update(zip((_micro(t) for t in times.tolist()), whose.tolist(), strict=True))

    def offenders() -> Iterator[str]:
        filled: Counter[int] = Counter()
        for asked in ledger.requests:
            at = _micro(asked.request.requested_at)
            near = next((owners[at + d] for d in (0, 1, -1) if at + d in owners), None)
            filled[at] += 1
            where = f"shard {asked.partition} at {asked.request.requested_at - BEGINNING:.6f}"
            if near is None:
                yield f"{where}: there is no such slot"
            elif near != asked.partition:
                yield f"{where}: the slot is shard {near}'s"
            if filled[at] > 1:
                yield f"{where}: the slot is filled twice"

    return Finding.of(
        "slots",
        "each request fills a slot of its shard, and each slot is filled once over all shards",
        offenders(),
        requests=len(ledger.requests),
        slots=len(owners),
    )


def _micro(seconds: float) -> int:
    return int((seconds - BEGINNING) * 1e6 + 0.5)


def _held_up(facts: Facts) -> Downtimes:
    """The time of the faults: what was filled before may come to the broker after them."""
    return [
        (BEGINNING + f.at, BEGINNING + f.at + f.seconds + facts.plan.scale.session_seconds)
        for f in facts.plan.faults
        if f.kind != "order"
    ]


def _at_addresses(facts: Facts, ledger: Ledger) -> dict[str, tuple[str, float]]:
    """Host → its address, and from when on every scheduler must know of it: after the estimators
    have said so, and what faults there were then."""
    seconds = 2.0 * facts.plan.scale.session_seconds
    return named_since(ledger, facts.truth.at_address, _held_up(facts), seconds)


def _named(facts: Facts) -> Finding:
    """What crawlers say of where hosts are is known at the end, of hosts that have pages."""

    def offenders() -> Iterator[str]:
        known = {row["host"]: row for of in facts.database.hosts.values() for row in of.values()}
        answered = {page.host for page in facts.truth.pages if page.crawled_at > 0}
        for host, address in sorted(facts.truth.at_address.items()):
            if host in answered and host in known and known[host]["named_group"] != address:
                yield f"{host} is of {known[host]['named_group']}, not {address}"

    return Finding.of("addresses", "hosts are of the groups that outcomes name", offenders())


def _owned_once(facts: Facts) -> Finding:
    """Every shard has one scheduler, which is caught up."""
    offenders = []
    for number in range(facts.database.layout.shards):
        count = len(facts.shards.get(number, ()))
        if count != 1:
            offenders.append(f"shard {number} is in {count} schedulers")
        offenders += [
            f"shard {number} is not caught up"
            for shard in facts.shards.get(number, ())
            if not shard.is_caught_up
        ]
    return Finding.of("owners", "every shard has one scheduler, which is caught up", offenders)


def _held(facts: Facts) -> Finding:
    """Nothing is picked of a shard of which its scheduler has said so: by the broker's times."""
    holdings = facts.database.holdings.ever

    def offenders() -> Iterator[str]:
        for holding in holdings:
            log = facts.broker.partition(CRAWL_REQUESTS.name, holding.shard)
            for record, at in log.history():
                if holding.begun < at < holding.ended:
                    yield f"{url_of(record)} at {at:.3f}, held since {holding.begun:.3f}"

    what = "nothing is picked of a shard that is about to be split"
    return Finding.of("held", what, offenders(), looked_at=len(holdings))


def _grown(facts: Facts) -> Finding:
    """A growth that was begun is over, and each shard has its own hosts and nobody else's, nor
    URLs."""
    database, layout = facts.database, facts.database.layout

    def offenders() -> Iterator[str]:
        if facts.truth.grown_to and (layout.shards != facts.truth.grown_to or layout.is_growing):
            yield f"{facts.truth.grown_to} shards were asked for, and there is {layout}"
        for shard, hosts in sorted(database.hosts.items()):
            for row in hosts.values():
                if layout.shard_of(row["host"]) != shard:
                    yield f"{row['host']} is in shard {shard}, not {layout.shard_of(row['host'])}"
            for page in database.pages.get(shard, {}).values():
                if page["host_id"] not in hosts:
                    yield f"{database.urls[shard, page['page_id']]} is in shard {shard}"
        for (shard, page_id), url in sorted(database.urls.items()):
            if page_id not in database.pages.get(shard, {}):
                yield f"{url} is left in shard {shard}"

    what = "shards that were to grow have, and each has its own hosts"
    return Finding.of("growth", what, offenders(), shards=layout.shards)
