"""What messages do to pages and hosts: the rules of the contract, one message after the other.

Limits come first, then page updates in order of their times, then signals and crawls in order of
theirs. What is older than what is known does nothing.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from aiokafka import ConsumerRecord

from services.verify.records import decoded
from services.verify.reference.quiet_crawls import (
    age_of,
    multiplier_of,
    note_quiet_crawl,
    single,
)
from services.verify.reference.state import (
    DEPTH,
    SOURCES,
    CrawlRecord,
    HostState,
    PageState,
    State,
    activity_of,
    directory_of,
)
from shared.contracts.identity import BadUrl, PageIdentity, digest_id_of, identify
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, HostLimit, PageSignal, PageUpdate
from shared.contracts.topics import CRAWL_OUTCOMES, HOST_LIMITS, PAGE_SIGNALS, PAGE_UPDATES
from shared.store.page_status import ACTIVE, DISALLOWED, DUPLICATE, GONE, NEVER, REDIRECTED, REMOVED
from shared.units import SECONDS_PER_DAY

OWN_SOURCES: Final = SOURCES - 1
MOST_SIGNALS: Final = 65_535
MOST_FAILURES: Final = 1000
MOST_MISSES: Final = 100
BUSY_STATUSES: Final = (429, 503)
BUSY_SECONDS: Final = 60.0
"""A host that answers so, and does not say until when, is left alone for so long."""

LONGEST_PAUSE_SECONDS: Final = SECONDS_PER_DAY
"""A host that asks for more gets so much."""

AT_ONCE: Final[Mapping[str | None, int]] = {
    "redirected": REDIRECTED,
    "canonical": DUPLICATE,
    "disallowed": DISALLOWED,
}
"""Result → status of a page that has nothing at its address, as far as is known now."""

Records = Mapping[str, Sequence[ConsumerRecord]]
"""Topic → records of one partition, in order of offset."""

Observation = tuple[int, float, float, int, bool]
"""Page, time of the crawl, days since the one before, signals in between, changed."""


@dataclass(frozen=True, slots=True)
class Terms:
    """By what messages are judged."""

    layout: Layout
    now: float
    """Unix seconds."""
    latest: float
    """Times after this cannot be."""
    signal_delay_seconds: float


@dataclass(slots=True)
class Effects:
    """What there is to be learned from."""

    touched: set[int] = field(default_factory=set)
    """Pages of which something changed."""
    observed: set[int] = field(default_factory=set)
    """Pages with new crawl records, and those with old ones whose prior is another."""
    observations: list[Observation] = field(default_factory=list)


def apply(state: State, shard: int, records: Records, terms: Terms) -> Effects:
    """Apply what came about a shard together, and change the state."""
    company = _Company(state, shard, terms)
    company.limits(records.get(HOST_LIMITS.name, ()))
    company.updates(records.get(PAGE_UPDATES.name, ()))
    signals = list(company.signals(records.get(PAGE_SIGNALS.name, ())))
    outcomes = list(company.outcomes(records.get(CRAWL_OUTCOMES.name, ())))
    # At the same moment signals come first; the sort is stable.
    for event in sorted([*signals, *outcomes], key=lambda event: event.time):
        if event.outcome is None:
            company.signal(event)
        elif event.outcome.result in ("failed", "gone", *AT_ONCE):
            company.failure(event, event.outcome)
        else:
            company.crawl(event, event.outcome)
    return company.effects


@dataclass(frozen=True, slots=True)
class _Event:
    time: float
    page: PageState
    source: int = 0
    outcome: CrawlOutcome | None = None


class _Company:
    """Messages about a shard that take effect together."""

    def __init__(self, state: State, shard: int, terms: Terms) -> None:
        self.effects = Effects()
        self._pages = state.pages
        self._hosts = state.hosts
        self._shard = shard
        self._terms = terms

    def _is_here(self, host: str) -> bool:
        return self._terms.layout.shard_of(host) == self._shard

    def _identity(self, url: str) -> PageIdentity | None:
        try:
            page = identify(url)
        except BadUrl:
            return None
        return page if self._is_here(page.host) else None

    def _host(self, name: str) -> HostState:
        return self._hosts.setdefault(name, HostState(name, self._shard))

    def _arrival(self, record: ConsumerRecord) -> float:
        return min(float(record.timestamp) / 1000.0, self._terms.now)

    def limits(self, records: Sequence[ConsumerRecord]) -> None:
        """Limits of hosts; a tombstone means the default."""
        for record in records:
            if record.value is None and record.key is not None:
                given = [HostLimit(record.key.decode(errors="replace"))]
            else:
                given = [limit for _, limit in decoded(HostLimit, [record])]
            for limit in given:
                if self._is_here(limit.host):
                    _limit(self._host(limit.host), limit)

    def updates(self, records: Sequence[ConsumerRecord]) -> None:
        """Pages that are added, changed and removed."""
        taken: list[tuple[float, PageUpdate, PageIdentity]] = []
        for record, update in decoded(PageUpdate, records):
            time = self._arrival(record) if update.updated_at is None else update.updated_at
            named = self._identity(update.url)
            if named is not None and max(time, update.crawled_at or 0.0) <= self._terms.latest:
                taken.append((time, update, named))
        taken.sort(key=lambda one: one[0])
        for time, update, identity in taken:
            if update.op == "upsert" and identity.page_id not in self._pages:
                self._host(identity.host)
                self._pages[identity.page_id] = PageState(
                    identity.page_id,
                    self._shard,
                    identity.host,
                    first_seen_at=time,
                    directory=directory_of(identity.url),
                )
                self.effects.touched.add(identity.page_id)
        for time, update, identity in taken:
            page = self._pages.get(identity.page_id)
            if page is not None and time >= page.updated_at:
                self.effects.touched.add(page.page_id)
                _update(page, time, update, self._terms.signal_delay_seconds)

    def signals(self, records: Sequence[ConsumerRecord]) -> Iterator[_Event]:
        """Signals about pages that are known; sources get their slots in order of arrival."""
        for _, signal in decoded(PageSignal, records):
            page = self._pages.get(signal.page_id)
            if signal.observed_at > self._terms.latest or not self._is_here(signal.host):
                continue
            if page is None or page.shard != self._shard:
                continue
            names = self._hosts[page.host].sources
            if signal.source not in names and len(names) < OWN_SOURCES:
                names.append(signal.source)
            known = signal.source in names
            yield _Event(
                signal.observed_at, page, names.index(signal.source) if known else OWN_SOURCES
            )

    def outcomes(self, records: Sequence[ConsumerRecord]) -> Iterator[_Event]:
        """Crawls of pages that are known; and hosts that ask to be left alone."""
        crawled_at: dict[int, float] = {}
        found = [outcome for _, outcome in decoded(CrawlOutcome, records)]
        for outcome in sorted(found, key=lambda outcome: outcome.crawled_at):
            identity = self._identity(outcome.url)
            if outcome.crawled_at > self._terms.latest or identity is None:
                continue
            if _leads_to_itself(outcome, identity):
                continue
            page, host = self._pages.get(identity.page_id), self._hosts.get(identity.host)
            if host is not None:
                # What a crawl says of its host counts, whether its page is known or not.
                is_late = (
                    page is not None
                    and page.status != REMOVED
                    and outcome.crawled_at
                    <= max(page.last_attempt_at, crawled_at.get(page.page_id, NEVER))
                )
                _note_host(host, outcome, is_late=is_late)
            if page is None:
                continue
            crawled_at[page.page_id] = outcome.crawled_at
            yield _Event(outcome.crawled_at, page, outcome=outcome)

    def signal(self, event: _Event) -> None:
        """Somebody says that a page may have changed."""
        page, time = event.page, event.time
        if time <= page.last_of(event.source):
            return
        page.watch(time, 1)
        page.note_signal(event.source, time)
        before = activity_of(page)
        page.signal_count += 1
        if page.records and activity_of(page) != before:
            self.effects.observed.add(page.page_id)  # its prior is another
        page.totals[event.source] += 1
        self._hosts[page.host].signals[event.source] += 1.0
        self.effects.touched.add(page.page_id)
        _bring_back(page, time)
        if time <= page.last_crawled_at + self._terms.signal_delay_seconds:
            return  # it is about what the crawl saw
        page.signals += 1
        page.pending[event.source] = min(page.pending[event.source] + 1, MOST_SIGNALS)

    def failure(self, event: _Event, outcome: CrawlOutcome) -> None:
        """A crawl did not get the page; three 404s in a row, or a 410, say that it is gone, and
        some results say by themselves that it is away."""
        page = event.page
        if event.time <= page.last_attempt_at:
            return
        page.watch(event.time, 0)
        page.last_attempt_at = event.time
        page.failures = min(page.failures + 1, MOST_FAILURES)
        self.effects.touched.add(page.page_id)
        if outcome.result != "failed":
            is_sure = outcome.result in AT_ONCE or outcome.http_status == 410
            page.misses = min(page.misses + 1, MOST_MISSES)
            page.misses = max(page.misses, 3 if is_sure else 0)
            if page.misses >= 3:
                page.failures = page.misses
        is_named_since = event.time < max(page.updated_at, page.last_signal_at)
        if page.status != REMOVED:
            is_away = page.misses >= 3 and not is_named_since
            page.status = AT_ONCE.get(outcome.result, GONE) if is_away else ACTIVE

    def crawl(self, event: _Event, outcome: CrawlOutcome) -> None:
        """A crawl got the page."""
        page, time = event.page, event.time
        if time <= page.last_crawled_at:
            return
        self.effects.touched.add(page.page_id)
        before, age_before = page.last_crawled_at, age_of(page)
        digest = 0 if outcome.result == "not_modified" else digest_id_of(outcome.digest)
        observed = before > NEVER and (outcome.result is not None or page.digest != 0)
        changed = observed and _is_changed(page, outcome, digest)
        signals, waiting = self._signals_before(page, time)
        kept = digest if digest or outcome.result == "changed" else page.digest
        _note_crawl(page, time, kept, changed=changed)
        if observed:
            days = (time - before) / SECONDS_PER_DAY
            self.effects.observed.add(page.page_id)
            self.effects.observations.append((page.page_id, time, days, signals, changed))
            record = CrawlRecord(single(days * page.multiplier), tuple(page.pending), changed)
            page.records = [*page.records, record][-DEPTH:]
            host = self._hosts[page.host]
            if signals == 0:
                note_quiet_crawl(host, page, age_before, days, changed=changed)
            page.multiplier = multiplier_of(host, age_of(page))
        page.pending, page.signals = waiting, sum(waiting)

    def _signals_before(self, page: PageState, time: float) -> tuple[int, list[int]]:
        """How many of the signals that wait came before a crawl, and those by source that wait on.
        Of each source only the last one's time is known: at most that one came after the crawl."""
        signals, waiting = page.signals, [0] * SOURCES
        if not signals:
            return 0, waiting
        for source in range(SOURCES):
            last = page.last_of(source)
            if page.pending[source] > 0 and last > time:
                page.pending[source] -= 1
                signals -= 1
            waiting[source] = int(last > time + self._terms.signal_delay_seconds)
        return signals, waiting


def _limit(host: HostState, limit: HostLimit) -> None:
    rate, until, delay = (
        limit.max_crawls_per_second,
        limit.blocked_until,
        limit.crawl_delay_seconds,
    )
    if limit.only is None or limit.only == "limit":
        host.max_crawls_per_second = math.nan if rate is None else rate
    if limit.only is None or limit.only == "block":
        host.blocked_until = NEVER if until is None else until
    if limit.only == "crawl-delay":
        host.crawl_delay = math.nan if delay is None else delay
    if limit.only == "open":
        host.max_open_requests = limit.max_open_requests or 0


def _note_host(host: HostState, outcome: CrawlOutcome, *, is_late: bool) -> None:
    """A crawl reached its host or did not; the host may ask for a pause; and it has an address.
    It failed late: its page was crawled since."""
    host.note_group(outcome.group, outcome.crawled_at)
    host.asked_until = max(host.asked_until, _busy_until(outcome))
    status, time = outcome.http_status or None, outcome.crawled_at
    if status is None and outcome.result == "disallowed":
        return  # nobody was there
    is_bad = outcome.result == "failed" if status is None else status == 429 or status >= 500
    if is_bad and is_late:
        return
    if is_bad and time > host.failed_at + host.back_off:
        host.failures, host.failed_at = min(host.failures + 1, 1000), time
    elif not is_bad and host.failures and time >= host.failed_at:
        host.failures, host.failed_at = 0, time


def _update(page: PageState, time: float, update: PageUpdate, signal_delay_seconds: float) -> None:
    page.updated_at = time
    if update.op == "remove":
        page.status = REMOVED
        return
    if page.status == REMOVED:
        page.begin_anew()
        page.status = ACTIVE
    _bring_back(page, time)
    if update.importance is not None:
        page.importance = update.importance
    if isinstance(update.page_class, str | None):
        page.page_class = update.page_class or ""
    if update.max_age_days is not None or update.no_max_age:
        page.max_age_days = update.max_age_days or math.inf
    if update.crawled_at is not None and update.crawled_at > page.last_crawled_at:
        page.take_copy(update.crawled_at, signal_delay_seconds)
    if update.urgent:
        page.urgent_at = time


def _bring_back(page: PageState, time: float) -> None:
    """Somebody says of a page at a time that it is there; newer crawls know better."""
    if page.status in (GONE, *AT_ONCE.values()) and time > page.last_attempt_at:
        page.status = ACTIVE


def _note_crawl(page: PageState, time: float, digest: int, *, changed: bool) -> None:
    page.last_crawled_at = time
    page.crawls += 1
    page.note_success(time)
    page.digest = digest
    if changed:
        page.last_changed_at = time
        page.changes += 1


def _leads_to_itself(outcome: CrawlOutcome, page: PageIdentity) -> bool:
    """Whether the page that an outcome names instead is the page: nobody believes that."""
    for target in (outcome.redirected_to, outcome.canonical_url):
        try:
            if target is not None and identify(target) == page:
                return True
        except BadUrl:
            pass
    return False


def _is_changed(page: PageState, outcome: CrawlOutcome, digest: int) -> bool:
    if outcome.result is None:
        return digest != page.digest
    return outcome.result == "changed"


def _busy_until(outcome: CrawlOutcome) -> float:
    if outcome.retry_after_seconds is not None:
        return outcome.crawled_at + min(outcome.retry_after_seconds, LONGEST_PAUSE_SECONDS)
    return outcome.crawled_at + BUSY_SECONDS if outcome.http_status in BUSY_STATUSES else NEVER
