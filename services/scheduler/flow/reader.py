"""From records to what they do to a shard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.scheduler import metrics
from services.scheduler.state.attempts import NO_ATTEMPT
from services.scheduler.state.crawls import Outcomes, short_digests
from services.scheduler.state.erasing import erase_host
from services.scheduler.state.shard import Shard
from shared.contracts.codec import decode_many
from shared.contracts.identity import BadHost, BadUrl, PageIdentity, identify, page_id_of
from shared.contracts.messages import (
    CrawlOutcome,
    HostLimit,
    HostParameters,
    PageParameters,
    PageSignal,
    PageUpdate,
)
from shared.contracts.request_ids import requested_us_of
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    HOST_LIMITS,
    HOST_PARAMETERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    Topic,
)
from shared.rules.host_rules import are_late, reaches_of, with_proper_host
from shared.rules.page_events import digests_of, elsewhere_to_themselves, kinds_of
from shared.runtime.acceptance import Acceptance
from shared.store.page_lookup import UNKNOWN
from shared.store.page_status import NEVER

Message = TypeVar("Message", bound=msgspec.Struct)
Announced = TypeVar("Announced", PageParameters, HostParameters)

PAGES_AT_ONCE: Final = 20_000
"""Pages that are brought up to date with what was learned of their hosts: some milliseconds."""


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that is the scheduler's to dead-letter."""

    record: ConsumerRecord
    reason: str


@dataclass(slots=True)
class Reader:
    """Applies records to shards; what the estimator reads too is the estimator's to refuse."""

    acceptance: Acceptance
    """The estimator's own: what it refuses must not be acted upon here."""
    refused: list[Refused] = field(default_factory=list)

    def apply(self, shard: Shard, topic: str, records: Sequence[ConsumerRecord]) -> None:
        """Apply the records of one topic, in order."""
        unknown = _APPLIERS[topic](self, shard, records)
        metrics.EVENTS.labels(topic).inc(len(records))
        if unknown:
            metrics.UNKNOWN_PAGES.labels(topic).inc(unknown)

    def _decoded(
        self, topic: Topic, kind: type[Message], records: Sequence[ConsumerRecord]
    ) -> list[Message]:
        messages, bad = decode_many(kind, [record.value for record in records])
        for index, error in bad.items():
            self._refuse(topic, records[index], str(error))
        return messages

    def _refuse(self, topic: Topic, record: ConsumerRecord, reason: str) -> None:
        metrics.UNREADABLE.labels(topic.name).inc()
        if topic in (PAGE_PARAMETERS, HOST_PARAMETERS):
            self.refused.append(Refused(record, reason))

    def updates(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `page-updates`."""
        updates: list[tuple[float, PageUpdate]] = []
        for record in records:
            for update in self._decoded(PAGE_UPDATES, PageUpdate, [record]):
                time = update.updated_at
                updates.append((self.acceptance.arrival(record) if time is None else time, update))
        updates.sort(key=lambda item: item[0])
        for time, update in updates:
            identity = _identity(update.url)
            latest = max(time, update.crawled_at or 0.0)
            if (
                identity is None
                or not self._accepts(shard, identity.host, latest)
                or self.acceptance.why_not_added(update, identity.host)
                or shard.hosts.names.has_twin(identity.host)
            ):
                metrics.UNREADABLE.labels(PAGE_UPDATES.name).inc()
            elif update.whole_host:
                erase_host(shard, identity.host, time)
            elif update.op == "remove":
                shard.remove(identity.page_id, time, for_good=update.for_good)
            else:
                shard.upsert(identity, update, time)
        shard.named_until = records[-1].offset + 1
        return 0

    def _accepts(self, shard: Shard, host: str, time: float) -> bool:
        """What is another shard's is its estimator's to pass on, or to refuse."""
        is_here = shard.layout.shard_of(host) == shard.number
        return is_here and self.acceptance.why_not_yet(time) is None

    def limits(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `host-limits`; a tombstone means the default."""
        now = self.acceptance.now
        for record in records:
            arrival = self.acceptance.arrival(record)
            if record.value is None and record.key is not None:
                limits = [HostLimit(record.key.decode(errors="replace"))]
            else:
                limits = self._decoded(HOST_LIMITS, HostLimit, [record])
            for limit in map(_with_proper_host, limits):
                if limit is None:
                    metrics.UNREADABLE.labels(HOST_LIMITS.name).inc()
                    continue
                is_late = shard.removals.of_host(limit.host) >= arrival  # it is erased
                is_itself = not shard.hosts.names.has_twin(limit.host)
                if not is_late and is_itself and self._accepts(shard, limit.host, now):
                    shard.take_host_limit(limit, now, arrival)
        return 0

    def parameters(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `page-parameters`."""
        messages = self._current(shard, PAGE_PARAMETERS, PageParameters, records)
        return shard.parameters(
            np.array([m.page_id for m in messages], np.int64),
            # None becomes NaN.
            np.array([m.unsignalled_change_rate for m in messages], np.float64),
            np.array([m.signal_evidence for m in messages], np.float64),
            np.array([m.signal_rate for m in messages], np.float64),
            np.array([m.activity for m in messages], np.uint8),
        )

    def host_parameters(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `host-parameters`; the last one of a host stands. Of very many pages most are left
        as they are for now: `HostRefreshes.go_on`."""
        messages = self._current(shard, HOST_PARAMETERS, HostParameters, records)
        # Of a host that was erased since.
        messages = [m for m in messages if m.updated_at > shard.removals.of_host(m.host)]
        shard.refreshes.take(list({m.host: m for m in messages}.values()))
        shard.refreshes.go_on(PAGES_AT_ONCE)
        return 0

    def _current(
        self, shard: Shard, topic: Topic, kind: type[Announced], records: Sequence[ConsumerRecord]
    ) -> list[Announced]:
        """What estimators announced, without what one sent that was replaced."""
        newest, current = shard.epochs.get(topic.name, shard.loaded_epoch), []
        for message in self._decoded(topic, kind, records):
            if message.epoch >= newest or not message.epoch:
                newest = max(newest, message.epoch)
                current.append(message)
            else:
                metrics.SUPERSEDED.labels(topic.name).inc()
        shard.epochs[topic.name] = newest
        return current

    def outcomes(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `crawl-outcomes` in order of time, and the pauses that hosts ask for with them."""
        decoded = self._decoded(CRAWL_OUTCOMES, CrawlOutcome, records)
        refused = elsewhere_to_themselves(decoded)
        messages = [m for place, m in enumerate(decoded) if place not in refused]
        messages.sort(key=attrgetter("crawled_at"))
        while messages and self.acceptance.why_not_yet(messages[-1].crawled_at):
            messages.pop()
        if not messages:
            return 0
        page_ids, rows = _pages_of(shard, [m.url for m in messages])
        self._note_hosts(shard, messages, rows)
        shard.notes.answered_elsewhere += _answers_elsewhere(shard, messages, rows)
        outcomes = Outcomes(
            page_ids,
            np.array([m.crawled_at for m in messages], np.float64),
            kinds_of(messages),
            np.array([requested_us_of(m.request_id) for m in messages], np.int64),
            short_digests(digests_of(messages)),
        )
        if shard.spent is not None:
            known = rows[rows != UNKNOWN]
            shard.spent.note(shard.pages["host"][known], outcomes.crawled_at[rows != UNKNOWN])
        return shard.outcomes(outcomes, rows)

    def _note_hosts(
        self, shard: Shard, outcomes: Sequence[CrawlOutcome], rows: NDArray[np.int32]
    ) -> None:
        """What outcomes say of their hosts, whether their pages are known or not."""
        failing = shard.hosts.failing
        reached, until = reaches_of(outcomes), self.acceptance.busy_until(outcomes)
        if not failing and reached.min() >= 0 and until.max() == NEVER:
            return  # as most batches are: all is well, and was
        hosts = _hosts_of(shard, outcomes, rows)
        if reached.min() < 0:
            reached[(reached < 0) & _are_late(shard, outcomes, rows)] = 0
        signs, pauses = reached.tolist(), until.tolist()
        troubled = failing.intersection(hosts)
        troubled |= {host for host, sign in zip(hosts, signs, strict=True) if sign < 0}
        now = self.acceptance.now
        for host, sign, asked, outcome in zip(hosts, signs, pauses, outcomes, strict=True):
            if host == UNKNOWN or (asked == NEVER and host not in troubled):
                continue
            if asked > NEVER:
                shard.pause_host(host, asked, now)
            shard.note_reached(host, sign, outcome.crawled_at, now)

    def signals(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `page-signals` in order of time."""
        messages = [
            message
            for message in self._decoded(PAGE_SIGNALS, PageSignal, records)
            if self._accepts(shard, message.host, message.observed_at)
        ]
        messages.sort(key=attrgetter("observed_at"))
        return shard.signals(
            np.array([m.page_id for m in messages], np.int64),
            np.array([m.observed_at for m in messages], np.float64),
            [m.source for m in messages],
        )


_APPLIERS: Final[dict[str, Callable[[Reader, Shard, Sequence[ConsumerRecord]], int]]] = {
    PAGE_UPDATES.name: Reader.updates,
    HOST_LIMITS.name: Reader.limits,
    HOST_PARAMETERS.name: Reader.host_parameters,
    PAGE_PARAMETERS.name: Reader.parameters,
    CRAWL_OUTCOMES.name: Reader.outcomes,
    PAGE_SIGNALS.name: Reader.signals,
}

TOPIC_ORDER: Final = tuple(_APPLIERS)
"""Pages before what is about them; crawls before signals, which count from the last crawl on."""


def _with_proper_host(limit: HostLimit) -> HostLimit | None:
    """None: its host is none."""
    try:
        return with_proper_host(limit)
    except BadHost:
        return None


def _identity(url: str) -> PageIdentity | None:
    try:
        return identify(url)
    except BadUrl:
        return None


def _pages_of(shard: Shard, urls: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Page ids of URLs, and their rows: as they come, which is canonical in answers, else
    canonicalised."""
    page_ids = np.array([page_id_of(url) for url in urls], np.int64)
    rows = shard.rows_of(page_ids)
    if UNKNOWN in rows.tolist():
        for index in np.flatnonzero(rows == UNKNOWN).tolist():
            identity = _identity(urls[index])
            if identity is not None:
                page_ids[index] = identity.page_id
                rows[index] = shard.row_of(identity.page_id)
    return page_ids, rows


def _answers_elsewhere(
    shard: Shard, outcomes: Sequence[CrawlOutcome], rows: NDArray[np.int32]
) -> int:
    """How many answer requests of shards into which this one was split, by crawlers that do not
    know of that yet: estimators pass them on."""
    if len(shard.layout.counts) == 1:
        return 0
    unknown = (outcomes[place] for place in np.flatnonzero(rows == UNKNOWN).tolist())
    asked = (_identity(outcome.url) for outcome in unknown if outcome.request_id is not None)
    here = (shard.layout.shard_of(page.host) == shard.number for page in asked if page is not None)
    return sum(not is_here for is_here in here)


def _are_late(
    shard: Shard, outcomes: Sequence[CrawlOutcome], rows: NDArray[np.int32]
) -> NDArray[np.bool_]:
    """Which outcomes, in order of time, were of crawls before others of the same pages."""
    pages, attempts = shard.pages[rows], shard.attempts.rows
    tried_at = attempts["last_attempt_at"][pages["attempt"]]
    tried_at = np.where(pages["attempt"] == NO_ATTEMPT, NEVER, tried_at)
    times = np.array([outcome.crawled_at for outcome in outcomes], np.float64)
    return are_late(rows, times, np.maximum(pages["last_crawled_at"], tried_at))


def _hosts_of(shard: Shard, outcomes: Sequence[CrawlOutcome], rows: NDArray[np.int32]) -> list[int]:
    """Numbers of the hosts of outcomes, by the rows of their pages; `UNKNOWN` where nobody knows
    the host."""
    hosts: list[int] = shard.pages["host"][rows].tolist()
    for index in np.flatnonzero(rows == UNKNOWN).tolist():
        identity = _identity(outcomes[index].url)
        known = shard.hosts.find(identity.host) if identity is not None else None
        hosts[index] = UNKNOWN if known is None else known
    return hosts
