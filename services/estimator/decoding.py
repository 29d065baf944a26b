"""From Kafka's records to columns of events of one shard; what cannot be taken, and why."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.estimator.columns import ERASE, REMOVE, UPSERT
from shared.contracts.codec import decode_many
from shared.contracts.identity import (
    BadHost,
    BadUrl,
    PageIdentity,
    host_id_of,
    identify,
    page_ids_of,
)
from shared.contracts.layout import Layout
from shared.contracts.messages import CrawlOutcome, HostLimit, PageSignal, PageUpdate
from shared.rules.host_rules import reaches_of, with_proper_host
from shared.rules.page_events import SIGNAL, digests_of, elsewhere_to_themselves, kinds_of
from shared.runtime.acceptance import Acceptance
from shared.store.class_numbers import AS_IT_IS, PageClasses, TooManyClasses
from shared.store.page_status import NEVER
from shared.store.twins import why_no_host

RowsOf = Callable[[NDArray[np.int64]], NDArray[np.int64]]
"""Page ids to rows, −1 for pages that are not there."""

SlotsOf = Callable[[NDArray[np.int64], Sequence[str]], NDArray[np.int8]]

WHEN_CLASSES_ARE_UNUSED: Final = (
    "where one of those has no page any more, restart the estimators, and let this message come "
    "once more (freshet dead-letters replay)"
)

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Refused:
    """A record that cannot be taken."""

    record: ConsumerRecord
    reason: str


@dataclass(frozen=True, slots=True)
class Misplaced:
    """A record about a host of another shard of the family (`shared.contracts.layout`)."""

    record: ConsumerRecord
    shard: int
    """That has the host, as far as is known here."""


@dataclass(slots=True)
class Events:
    """Signals and outcomes as columns, one element an event."""

    page_ids: NDArray[np.int64]
    times: NDArray[np.float64]
    kinds: NDArray[np.int8]
    """Of `page_events`: `SIGNAL`, ..."""
    digests: NDArray[np.int64]
    """0: none."""
    busy_until: NDArray[np.float64]
    """Until when the host asked to be left alone; −inf: it did not."""
    reached: NDArray[np.int8]
    """Of an outcome: whether the crawl reached its host (1), or did not (−1); 0: it was not made,
    or it is a signal."""
    slots: NDArray[np.int8]
    """Of a signal: its source's slot at the host."""
    groups: NDArray[np.bytes_]
    """Of an outcome: the group that it says its host is of; empty: none."""
    records: list[ConsumerRecord]


_NONE: Final = np.empty(0, np.int8)

_NO_EVENTS: Final = Events(
    np.empty(0, np.int64),
    np.empty(0),
    _NONE,
    np.empty(0, np.int64),
    np.empty(0),
    _NONE,
    _NONE,
    np.empty(0, "S1"),
    [],
)
"""Most batches have events of one kind only."""


@dataclass(slots=True)
class Updates:
    """Page updates as columns, one element a message, in rising order of time."""

    pages: list[PageIdentity]
    times: NDArray[np.float64]
    operations: NDArray[np.int8]
    importance: NDArray[np.float64]
    """NaN: not given."""
    max_age_days: NDArray[np.float64]
    """NaN: not given; infinite: none any more."""
    crawled_at: NDArray[np.float64]
    """−inf: not given."""
    urgent: NDArray[np.bool_]
    whole_host: NDArray[np.bool_]
    """Of those that erase: all pages of the host, and the host."""
    page_class: NDArray[np.int16]
    """Number of the class; `AS_IT_IS`: nothing is said."""


_NO_UPDATES: Final = Updates(
    [],
    np.empty(0),
    _NONE,
    np.empty(0),
    np.empty(0),
    np.empty(0),
    np.empty(0, np.bool_),
    np.empty(0, np.bool_),
    np.empty(0, np.int16),
)


@dataclass(slots=True)
class Reader:
    """Decodes the records of one shard, and gathers those that it refuses or passes on."""

    shard: int
    layout: Layout
    acceptance: Acceptance
    classes: PageClasses
    has_twin: Callable[[str], bool]
    """Whether a host has the id of another one that is there (`Hosts.has_twin`)."""
    refused: list[Refused] = field(default_factory=list)
    misplaced: list[Misplaced] = field(default_factory=list)
    _named: dict[int, str] = field(default_factory=dict)
    """The hosts that records of the batch speak of, by their ids."""

    def updates(self, records: Sequence[ConsumerRecord]) -> Updates:
        """Read `page-updates`."""
        if not records:
            return _NO_UPDATES
        taken: list[tuple[float, PageUpdate, PageIdentity, int, ConsumerRecord]] = []
        for record, update in zip(*self._decoded(PageUpdate, records), strict=True):
            time = (
                self.acceptance.arrival(record) if update.updated_at is None else update.updated_at
            )
            page = self._identity(record, update.url)
            latest = max(time, update.crawled_at or 0.0)
            if page is None or not self._is_past(record, latest):
                continue
            if self._accepts(record, self.acceptance.why_not_added(update, page.host)):
                number = self._class_of(record, update)
                if number is not None:
                    taken.append((time, update, page, number, record))
        taken.sort(key=lambda item: item[0])
        # In this order, as schedulers do it: of two hosts with one id, the first is the host.
        taken = [item for item in taken if self._is_itself(item[4], item[2].host)]
        messages = [update for _, update, *_ in taken]
        return Updates(
            [page for _, _, page, *_ in taken],
            np.array([time for time, *_ in taken], np.float64),
            np.array([_operation(m) for m in messages], np.int8),
            np.array([_or(m.importance, np.nan) for m in messages], np.float64),
            np.array(
                [np.inf if m.no_max_age else _or(m.max_age_days, np.nan) for m in messages],
                np.float64,
            ),
            np.array([_or(m.crawled_at, NEVER) for m in messages], np.float64),
            np.array([m.urgent for m in messages], np.bool_),
            np.array([m.whole_host for m in messages], np.bool_),
            np.array([number for _, _, _, number, _ in taken], np.int16),
        )

    def _class_of(self, record: ConsumerRecord, update: PageUpdate) -> int | None:
        """The number of the class that an update gives its page; None: there are too many."""
        if update.op == "remove":
            return AS_IT_IS
        try:
            return self.classes.number_of(update.page_class)
        except TooManyClasses as error:
            self._refuse(record, f"{error}; {WHEN_CLASSES_ARE_UNUSED}")
            return None

    def signals(self, records: Sequence[ConsumerRecord], slots_of: SlotsOf) -> Events:
        """Read `page-signals`.

        Args:
            records: of the topic.
            slots_of: page ids and the names of sources to their slots.
        """
        if not records:
            return _NO_EVENTS
        kept, signals = self._acceptable(
            *self._decoded(PageSignal, records), attrgetter("observed_at"), attrgetter("host")
        )
        page_ids = np.array([signal.page_id for signal in signals], np.int64)
        return Events(
            page_ids,
            np.array([signal.observed_at for signal in signals], np.float64),
            np.full(len(signals), SIGNAL, np.int8),
            np.zeros(len(signals), np.int64),
            np.full(len(signals), NEVER),
            np.zeros(len(signals), np.int8),
            slots_of(page_ids, [signal.source for signal in signals]),
            np.zeros(len(signals), "S1"),
            kept,
        )

    def outcomes(self, records: Sequence[ConsumerRecord], rows_of: RowsOf) -> Events:
        """Read `crawl-outcomes`.

        A URL whose hash is a known page's id *is* that page's canonical URL: only the others are
        canonicalised, which costs ten times as much.
        """
        if not records:
            return _NO_EVENTS
        kept, outcomes = self._acceptable(
            *self._decoded(CrawlOutcome, records), attrgetter("crawled_at")
        )
        page_ids = page_ids_of([outcome.url for outcome in outcomes])
        good = np.ones(len(outcomes), np.bool_)
        for place, objection in elsewhere_to_themselves(outcomes).items():
            good[place] = self._accepts(kept[place], objection)
        for unknown in np.flatnonzero(good & (rows_of(page_ids) < 0)).tolist():
            page = self._identity(kept[unknown], outcomes[unknown].url)
            good[unknown] = page is not None
            if page is not None:
                page_ids[unknown] = page.page_id
        if not good.all():
            kept = list(compress(kept, good))
            outcomes = list(compress(outcomes, good))
        return Events(
            page_ids[good],
            np.array([outcome.crawled_at for outcome in outcomes], np.float64),
            kinds_of(outcomes),
            digests_of(outcomes),
            self.acceptance.busy_until(outcomes),
            reaches_of(outcomes),
            np.zeros(len(outcomes), np.int8),
            _groups_of(outcomes),
            kept,
        )

    def limits(self, records: Sequence[ConsumerRecord]) -> list[tuple[float, HostLimit]]:
        """Read `host-limits`: messages with the times at which they came; a tombstone, whose key
        is the host, means the default."""
        limits = []
        for record in records:
            if record.value is None and record.key is not None:
                given = [HostLimit(record.key.decode(errors="replace"))]
            else:
                given = self._decoded(HostLimit, [record])[1]
            ours = (self._limit_here(record, limit) for limit in given)
            limits += [(self.acceptance.arrival(record), limit) for limit in ours if limit]
        return limits

    def _limit_here(self, record: ConsumerRecord, limit: HostLimit) -> HostLimit | None:
        """With its host as pages have it; None: it is refused."""
        try:
            limit = with_proper_host(limit)
        except BadHost as error:
            self._refuse(record, str(error))
            return None
        is_ours = self._is_here(record, limit.host) and self._is_itself(record, limit.host)
        return limit if is_ours else None

    def _decoded(
        self, kind: type[T], records: Sequence[ConsumerRecord]
    ) -> tuple[list[ConsumerRecord], list[T]]:
        """The records that can be read, and their messages."""
        messages, bad = decode_many(kind, [record.value for record in records])
        for index, error in bad.items():
            self._refuse(records[index], str(error))
        if not bad:
            return list(records), messages
        return [r for index, r in enumerate(records) if index not in bad], messages

    def _acceptable(
        self,
        records: list[ConsumerRecord],
        messages: list[T],
        time_of: Callable[[T], float],
        host_of: Callable[[T], str] | None = None,
    ) -> tuple[list[ConsumerRecord], list[T]]:
        """Those whose time is not yet to come, and whose host, if it is named, belongs here."""
        hosts = set(map(host_of, messages)) if host_of is not None else set()
        elsewhere = any(self.layout.shard_of(host) != self.shard for host in hosts)
        latest = max(map(time_of, messages), default=0.0)
        if not elsewhere and self.acceptance.why_not_yet(latest) is None:
            return records, messages
        good = [
            (host_of is None or self._is_here(record, host_of(message)))
            and self._is_past(record, time_of(message))
            for record, message in zip(records, messages, strict=True)
        ]
        return list(compress(records, good)), list(compress(messages, good))

    def _identity(self, record: ConsumerRecord, url: str) -> PageIdentity | None:
        try:
            page = identify(url)
        except BadUrl as error:
            self._refuse(record, str(error))
            return None
        return page if self._is_here(record, page.host) else None

    def _is_here(self, record: ConsumerRecord, host: str) -> bool:
        right = self.layout.shard_of(host)
        if right == self.shard:
            return True
        if self.layout.is_near(host, self.shard):
            self.misplaced.append(Misplaced(record, right))
        else:
            belongs = f"host {host[:300]} belongs to {right}: key the record by its host"
            self._refuse(record, f"it came on partition {self.shard}, but {belongs}")
        return False

    def _is_itself(self, record: ConsumerRecord, host: str) -> bool:
        """Whether no other host has the id of this one. Names are made that have somebody else's:
        their pages would go by the rules of that host, and it by what theirs answer."""
        if self._named.setdefault(host_id_of(host), host) == host and not self.has_twin(host):
            return True
        self._refuse(record, why_no_host(host))
        return False

    def _is_past(self, record: ConsumerRecord, time: float) -> bool:
        return self._accepts(record, self.acceptance.why_not_yet(time))

    def _accepts(self, record: ConsumerRecord, objection: str | None) -> bool:
        if objection is not None:
            self._refuse(record, objection)
        return objection is None

    def _refuse(self, record: ConsumerRecord, reason: str) -> None:
        self.refused.append(Refused(record, reason))


def _groups_of(outcomes: Sequence[CrawlOutcome]) -> NDArray[np.bytes_]:
    groups = [outcome.group for outcome in outcomes]
    if not any(groups):
        return np.zeros(len(groups), "S1")
    return np.array([group or "" for group in groups], np.bytes_)


def _operation(update: PageUpdate) -> int:
    if update.op != "remove":
        return UPSERT
    return ERASE if update.for_good else REMOVE


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _sorted(events: Events) -> Events:
    """Events in rising order of time, as most batches have them already."""
    if (events.times[1:] >= events.times[:-1]).all():
        return events
    order = np.argsort(events.times, kind="stable")
    return Events(
        events.page_ids[order],
        events.times[order],
        events.kinds[order],
        events.digests[order],
        events.busy_until[order],
        events.reached[order],
        events.slots[order],
        events.groups[order],
        [events.records[position] for position in order.tolist()],
    )


def joined(first: Events, second: Events) -> Events:
    """Two sets of events in rising order of time; at the same moment, those of `first` first."""
    if not first.records or not second.records:
        return _sorted(first if first.records else second)
    return _sorted(
        Events(
            np.concatenate([first.page_ids, second.page_ids]),
            np.concatenate([first.times, second.times]),
            np.concatenate([first.kinds, second.kinds]),
            np.concatenate([first.digests, second.digests]),
            np.concatenate([first.busy_until, second.busy_until]),
            np.concatenate([first.reached, second.reached]),
            np.concatenate([first.slots, second.slots]),
            np.concatenate([first.groups, second.groups]),
            first.records + second.records,
        )
    )
