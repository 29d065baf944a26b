"""From records to what they do to a shard."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.scheduler import metrics
from services.scheduler.state import events
from services.scheduler.state.request_ids import requested_us_of
from services.scheduler.state.shard import Shard
from shared.contracts.codec import BadMessage, decode
from shared.contracts.identity import BadUrl, PageIdentity, digest_id_of, identify, page_id_of
from shared.contracts.messages import (
    CrawlOutcome,
    HostLimit,
    HostParameters,
    PageParameters,
    PageSignal,
    PageUpdate,
)
from shared.contracts.topics import (
    CRAWL_OUTCOMES,
    HOST_LIMITS,
    HOST_PARAMETERS,
    PAGE_PARAMETERS,
    PAGE_SIGNALS,
    PAGE_UPDATES,
    Topic,
)
from shared.rules.page_events import RESULTS
from shared.runtime.acceptance import Acceptance, busy_until

Message = TypeVar("Message", bound=msgspec.Struct)
Announced = TypeVar("Announced", PageParameters, HostParameters)


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
        self, topic: Topic, kind: type[Message], records: Iterable[ConsumerRecord]
    ) -> list[Message]:
        messages = []
        for record in records:
            try:
                messages.append(decode(kind, record.value))
            except BadMessage as error:
                self._refuse(topic, record, str(error))
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
            if identity is None or not self._accepts(shard, identity.host, latest):
                metrics.UNREADABLE.labels(PAGE_UPDATES.name).inc()
            elif update.op == "remove":
                shard.remove(identity.page_id, time)
            else:
                shard.upsert(identity, update, time)
        return 0

    def _accepts(self, shard: Shard, host: str, time: float) -> bool:
        accepted = self.acceptance
        return not (accepted.why_not_here(host, shard.number) or accepted.why_not_yet(time))

    def limits(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `host-limits`; a tombstone means the default."""
        now = self.acceptance.now
        for record in records:
            if record.value is None and record.key is not None:
                limits = [HostLimit(record.key.decode(errors="replace"))]
            else:
                limits = self._decoded(HOST_LIMITS, HostLimit, [record])
            for limit in limits:
                if self._accepts(shard, limit.host, now):
                    rate, blocked_until = limit.max_crawls_per_second, limit.blocked_until
                    shard.limit_host(limit.host, rate, blocked_until, now)
        return 0

    def parameters(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `page-parameters`."""
        messages = self._current(shard, PAGE_PARAMETERS, PageParameters, records)
        return shard.parameters(
            np.array([m.page_id for m in messages], np.int64),
            np.array([_or_nan(m.unsignalled_change_rate) for m in messages], np.float64),
            np.array([_or_nan(m.signal_evidence) for m in messages], np.float64),
            np.array([m.signal_rate for m in messages], np.float64),
        )

    def host_parameters(self, shard: Shard, records: Sequence[ConsumerRecord]) -> int:
        """Apply `host-parameters`; the last one of a host stands."""
        messages = self._current(shard, HOST_PARAMETERS, HostParameters, records)
        shard.host_parameters(list({m.host: m for m in messages}.values()))
        return 0

    def _current(
        self, shard: Shard, topic: Topic, kind: type[Announced], records: Iterable[ConsumerRecord]
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
        messages = [
            message
            for message in self._decoded(CRAWL_OUTCOMES, CrawlOutcome, records)
            if not self.acceptance.why_not_yet(message.crawled_at)
        ]
        messages.sort(key=attrgetter("crawled_at"))
        page_ids = _known_ids(shard, [m.url for m in messages])
        for message, page_id in zip(messages, page_ids.tolist(), strict=True):
            until = busy_until(message)
            if until is not None:
                _pause_host(shard, message, page_id, until)
        return shard.outcomes(
            events.Outcomes(
                page_ids,
                np.array([m.crawled_at for m in messages], np.float64),
                np.array([RESULTS[m.result] for m in messages], np.int8),
                np.array([requested_us_of(m.request_id) for m in messages], np.int64),
                events.short_digests(
                    np.array([digest_id_of(m.digest) for m in messages], np.int64)
                ),
            )
        )

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


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value


def _identity(url: str) -> PageIdentity | None:
    try:
        return identify(url)
    except BadUrl:
        return None


def _known_ids(shard: Shard, urls: Sequence[str]) -> NDArray[np.int64]:
    """Page ids of URLs: as they come, which is canonical in answers, else canonicalised."""
    page_ids = np.array([page_id_of(url) for url in urls], np.int64)
    for index in np.flatnonzero(shard.rows_of(page_ids) < 0).tolist():
        identity = _identity(urls[index])
        if identity is not None:
            page_ids[index] = identity.page_id
    return page_ids


def _pause_host(shard: Shard, outcome: CrawlOutcome, page_id: int, until: float) -> None:
    """A host's wish counts, whether its page is known or not."""
    row = shard.row_of(page_id)
    host: int | None = None
    if row >= 0:
        host = int(shard.pages[row]["host"])
    elif (identity := _identity(outcome.url)) is not None:
        host = shard.hosts.find(identity.host)
    if host is not None:
        shard.pause_host(host, until)
