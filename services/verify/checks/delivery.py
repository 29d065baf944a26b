"""Nothing lost and nothing applied twice, from the world through the topics into Postgres."""

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

import xxhash

from services.verify.checks.downtime import Downtimes, down_within
from services.verify.checks.finding import Finding
from services.verify.ledger import NO_CRAWLS, Ledger
from services.verify.poison import Place
from services.verify.relearning import Relearned
from services.verify.sending import Account, Refusal
from services.verify.system import DEBOUNCE_SECONDS
from shared.contracts.identity import BadUrl, identify
from shared.contracts.layout import Layout
from shared.contracts.topics import DEAD_LETTERS


def published(ledger: Ledger, *accounts: Account) -> Finding:
    """What the broker acknowledged, or gave out, is on the topic as it was."""

    def missing() -> Iterator[str]:
        values = {
            (name, record.partition, record.offset): record.value
            for name, records in ledger.raw.items()
            for record in records
        }
        for account in accounts:
            for (topic, partition), offsets in account.offsets.items():
                for offset, digest in zip(offsets, account.hashes[topic, partition], strict=True):
                    value = values.get((topic, partition, offset))
                    if value is None or xxhash.xxh3_64_intdigest(value) != digest:
                        yield f"{topic}/{partition} at {offset} is not what was acknowledged"

    what = "what the broker acknowledged stands on its topic"
    return Finding.of(
        "published", what, missing(), looked_at=sum(account.count for account in accounts)
    )


def refused(ledger: Ledger, downtimes: Downtimes, *accounts: Account) -> Finding:
    """What the broker did not acknowledge was on its way while it was down.

    It counts for nobody: as it may be on its topic or not, it is neither published nor lost.

    Args:
        ledger: of the run.
        downtimes: of the broker.
        accounts: of what was sent.
    """
    refusals = [refusal for account in accounts for refusal in account.refused]
    stands = standing(ledger, refusals)
    offenders = [
        f"{one.topic}/{one.partition}, sent {one.sent_at:.3f}: {one.why}"
        for one in refusals
        if down_within(downtimes, one.sent_at, one.refused_at) == 0.0
    ]
    return Finding.of(
        "refused",
        "the broker refuses what it is sent only while it is down",
        offenders,
        looked_at=len(refusals) + sum(account.count for account in accounts),
        refused=len(refusals),
        there_all_the_same=sum(one.value in stands for one in refusals),
    )


def standing(ledger: Ledger, refusals: Sequence[Refusal]) -> set[bytes]:
    """The values of refused messages that are on their topics all the same."""
    topics = {refusal.topic for refusal in refusals}
    there = {record.value for topic in topics for record in ledger.raw.get(topic, ())}
    return {refusal.value for refusal in refusals} & there


def crawls_applied(
    ledger: Ledger, held_at: dict[int, float], may_count: Collection[str] = ()
) -> tuple[Finding, Finding]:
    """Each outcome counted once.

    Args:
        ledger: of the run.
        held_at: page → when the copy was crawled that was held at the beginning.
        may_count: results that another version took for crawls.

    Returns:
        pages with fewer crawls than outcomes, and pages with more.
    """
    crawled: dict[int, list[float]] = defaultdict(list)
    besides: dict[int, set[float]] = defaultdict(set)
    # On a partition that never was its host's, as a bad message may be, it counts nowhere.
    near = [
        (answered, page_id)
        for answered in ledger.outcomes
        if (page_id := _page_id(answered.outcome.url, answered.partition, ledger.layout))
        is not None
    ]
    # What was passed on while shards grew counts where, and when, it came there.
    last = {(one.outcome.url, one.outcome.crawled_at): one.partition for one, _ in near}
    for answered, page_id in near:
        outcome = answered.outcome
        if answered.partition != last[outcome.url, outcome.crawled_at]:
            continue
        if outcome.result not in NO_CRAWLS:
            crawled[page_id].append(outcome.crawled_at)
        elif outcome.result in may_count:
            besides[page_id].add(outcome.crawled_at)
    lost, doubled = [], []
    for page in ledger.pages:
        before = held_at.get(page.page_id, -math.inf)
        times = [time for time in crawled[page.page_id] if time > before]
        # An outcome that comes after a later one's changes nothing, unless one batch has both.
        least, most = _rising(times), len(besides[page.page_id].union(times))
        if page.crawls < least:
            lost.append(f"{page.url}: {page.crawls} crawls applied of {least} on the topic")
        elif page.crawls > most:
            doubled.append(f"{page.url}: {page.crawls} crawls applied, {most} on the topic")
        elif times and page.last_crawled_at not in {max(times), *besides[page.page_id]}:
            lost.append(f"{page.url}: last crawled {page.last_crawled_at}, not {max(times)}")
    what = "pages have as many crawls in Postgres as outcomes on the topic"
    looked_at = len(ledger.outcomes)
    return (
        Finding.of("crawls applied", what, lost, looked_at=looked_at, pages=len(ledger.pages)),
        Finding.of("crawls applied once", what, doubled, looked_at=looked_at),
    )


def _rising(times: list[float]) -> int:
    count, last = 0, -math.inf
    for time in times:
        if time > last:
            count, last = count + 1, time
    return count


def _page_id(url: str, partition: int, layout: Layout) -> int | None:
    try:
        page = identify(url)
    except BadUrl:
        return None
    return page.page_id if layout.is_near(page.host, partition) else None


def histories(ledger: Ledger, relearned: Relearned) -> tuple[Finding, Finding]:
    """Each crawl record once: those in Postgres are those that the events come to.

    Returns:
        records that are not there, and records that are there too often.
    """
    expected, actual = Counter(relearned.observations), Counter(ledger.observations)
    what = "crawl records in Postgres are those that the events come to"
    lost = map(str, (expected - actual).elements())
    doubled = map(str, (actual - expected).elements())
    return (
        Finding.of("histories", what, lost, looked_at=expected.total()),
        Finding.of("histories once", what, doubled, looked_at=actual.total()),
    )


def signals_passed(ledger: Ledger) -> Finding:
    """Signals about pages are passed on, but for those that come soon after one that was."""
    passed = {(s.url, s.source, s.observed_at) for s in ledger.page_signals}
    came: dict[tuple[str, str], list[float]] = defaultdict(list)
    for at, signal in ledger.signals:
        # No signal is of the future: one that came when it was observed has the broker's time,
        # which is in milliseconds.
        observed_at = min(signal.observed_at or at, at)
        if (signal.url, signal.source, observed_at) in passed:
            came[signal.url, signal.source].append(at)
    known = {page.url for page in ledger.pages}

    def lost() -> Iterator[str]:
        for at, sent in ledger.signals:
            if sent.url not in known or sent.observed_at is None:
                continue
            near = came.get((sent.url, sent.source), [])
            if not any(abs(time - at) < DEBOUNCE_SECONDS for time in near):
                yield f"{sent.source} about {sent.url}, observed {sent.observed_at}, sent {at}"

    return Finding.of(
        "signals",
        "signals are passed on",
        lost(),
        looked_at=len(ledger.signals),
        page_signals=len(ledger.page_signals),
    )


def dead_letters(
    ledger: Ledger,
    poison: Mapping[Place, str],
    may_be_skipped: Collection[Place],
    tried: Collection[int] = (),
    not_acknowledged: int = 0,
) -> Finding:
    """The dead letters are the poison, all of it and nothing else.

    Args:
        ledger: of the run.
        poison: where each bad message stands, and what it is.
        may_be_skipped: those that need not have been read.
        tried: hashes of all bad messages that were sent, acknowledged or not.
        not_acknowledged: how many were not: some are too large for the broker itself.
    """
    found: Counter[Place] = Counter()
    reasons: dict[Place, str] = {}
    for letter in ledger.raw[DEAD_LETTERS.name]:
        headers = {name: (value or b"").decode(errors="replace") for name, value in letter.headers}
        place = (headers["topic"], int(headers["partition"]), int(headers["offset"]))
        if place not in poison and xxhash.xxh3_64_intdigest(letter.value or b"") in tried:
            continue  # the broker had it, and its acknowledgement was lost
        found[place] += 1
        reasons[place] = f"{headers['stage']}: {headers['error']}"
    skipped = [place for place in poison if place not in found]
    offenders = [
        f"not set aside: {poison[place]} at {place}"
        for place in skipped
        if place not in may_be_skipped
    ]
    offenders += [f"set aside: {p}, {reasons[p]}" for p in found if p not in poison]
    return Finding.of(
        "dead letters",
        "dead letters are the bad messages and nothing else",
        offenders,
        looked_at=len(poison),
        skipped=len(skipped),
        not_acknowledged=not_acknowledged,
        # A worker that ends between two steps sets a message aside again: known by its place.
        repeated=found.total() - len(found),
    )
