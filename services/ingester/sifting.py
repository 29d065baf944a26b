"""What becomes of a batch of untrusted signals: pure, with the time as an argument."""

import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol

import numpy as np
import xxhash

from services.ingester.debounce import Debouncer
from services.ingester.sources import REPORT_SECONDS, SourceLimiter, Verdict
from shared.contracts.codec import BadMessage, decode_many
from shared.contracts.identity import BadUrl, identify
from shared.contracts.messages import PageSignal, Signal
from shared.runtime.pings import KEY_HEADER
from shared.runtime.signal_bounds import SignalBounds

LANES = 4
"""Where some sources are named, all others count as so many when a page's repetitions are dropped:
made-up names cannot raise its count faster. Where none is, any name may be that of an honest one,
which no other is to silence: then they all count, and the limits of rates alone hold (measured by
`freshet bench abuse --option named=false`: made-up names do no more harm there)."""

UNNAMED = "unnamed"
"""What such a source is called from here on, where some are named: hosts learn the record of a few
sources each, and made-up names must not take their places."""


class Record(Protocol):
    """What is needed of a Kafka record."""

    @property
    def value(self) -> bytes | None:
        """The message."""
        ...

    @property
    def timestamp(self) -> int:
        """Milliseconds of the wall clock; negative: none."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Names and values."""
        ...


@dataclass(frozen=True, slots=True)
class SignalRules:
    """Which signals are taken."""

    bounds: SignalBounds
    record_times_count: bool
    """Whether the records' own timestamps are the clock's time; they are the wall's, so not when
    the clock is a simulated one."""
    named_sources: frozenset[str] = frozenset()
    """Sources that the operator knows; empty: none is told from another."""
    source_keys: Mapping[str, bytes] = field(default_factory=dict)
    """What a record must carry to speak for a source."""


@dataclass(slots=True)
class Sifted:
    """What became of a batch. Indices are into the batch."""

    accepted: list[PageSignal] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)
    """For the dead letters, with the reason."""
    repeated: int = 0
    over_limit: int = 0
    delays: dict[str, list[float]] = field(default_factory=dict)
    """Source that is named, or `UNNAMED` → seconds from the times that its signals say to their
    arrival, repetitions too."""


class Sifter:
    """Decodes, checks, limits, names and debounces signals."""

    def __init__(self, rules: SignalRules, limiter: SourceLimiter, debouncer: Debouncer) -> None:
        self._rules = rules
        self._limiter = limiter
        self._debouncer = debouncer

    def go_by(self, rules: SignalRules, limiter: SourceLimiter) -> None:
        """Go by other rules and limits, from the next batch on at the latest."""
        self._rules, self._limiter = rules, limiter

    @property
    def sources(self) -> int:
        """How many sources are watched one by one."""
        return len(self._limiter)

    def sift(
        self, records: Sequence[Record], now: float, headed: list[int] | None = None
    ) -> Sifted:
        """Sort a batch into what passes, what is refused and what is only counted.

        Args:
            records: as read from `signals`, in order.
            now: clock seconds.
            headed: gets the indices of those that carry a header. To look at all records once
                more costs five times as much: they are not in the processor's cache any more.
        """
        sifted = Sifted()
        keys: list[int] = []
        times: list[float] = []
        decoded, bad = decode_many(Signal, [record.value for record in records])
        signals = iter(decoded)
        for index, record in enumerate(records):
            if headed is not None and record.headers:
                headed.append(index)
            if index in bad:
                sifted.refused.append((index, str(bad[index])))
                continue
            signal = next(signals)
            try:
                arrived_at = self._arrival_of(signal, record, now)
                verdict = self._limiter.take(signal.source, arrived_at, now)
                if verdict is Verdict.PASS:
                    named = self._name(signal, arrived_at)
                    if signal.observed_at is not None:
                        late = max(arrived_at - signal.observed_at, 0.0)
                        sifted.delays.setdefault(self._known(signal.source), []).append(late)
                    sifted.accepted.append(named)
                    keys.append(named.page_id ^ self._source_key(signal.source))
                    times.append(
                        arrived_at if self._rules.record_times_count else named.observed_at
                    )
                    continue
            except (BadMessage, BadUrl) as error:
                sifted.refused.append((index, str(error)))
                continue
            sifted.over_limit += 1
            if verdict is not Verdict.DROP:
                sifted.refused.append((index, self._over_limit_reason(signal.source, verdict)))
        self._drop_repeated(sifted, keys, times)
        return sifted

    def _arrival_of(self, signal: Signal, record: Record, now: float) -> float:
        """When a signal arrived; raises `BadMessage` where it is not to be taken."""
        if not signal.source.isprintable():
            raise BadMessage("the source has control or unprintable characters")
        if signal.source in self._rules.source_keys:
            self._check_key(signal.source, record)
        stamped = self._rules.record_times_count and record.timestamp >= 0
        arrived_at = record.timestamp / 1000 if stamped else now
        observed_at = arrived_at if signal.observed_at is None else signal.observed_at
        self._rules.bounds.check_time(observed_at, now)
        return min(arrived_at, now)

    def _check_key(self, source: str, record: Record) -> None:
        key = self._rules.source_keys[source]
        shown = next((value for name, value in record.headers if name == KEY_HEADER), None) or b""
        # A record without the header shows nothing, which would be as good as an empty key.
        if not key or not hmac.compare_digest(shown, key):
            raise BadMessage(
                f"source {source!r} is known by a key, and this record does not carry it in its "
                f"header {KEY_HEADER!r} (FRESHET_SIGNAL_SOURCE_KEYS)"
            )

    def _name(self, signal: Signal, arrived_at: float) -> PageSignal:
        page = identify(signal.url)
        self._rules.bounds.check_host(page.host)
        observed_at = arrived_at if signal.observed_at is None else signal.observed_at
        if self._rules.record_times_count:
            # A time yet to come would make honest signals until then look old.
            observed_at = min(observed_at, arrived_at)
        source = self._known(signal.source) if self._rules.named_sources else signal.source
        return PageSignal(page.page_id, page.url, page.host, source, observed_at)

    def _known(self, source: str) -> str:
        """A source that the operator has named; all others are one."""
        return source if source in self._rules.named_sources else UNNAMED

    def _source_key(self, source: str) -> int:
        key, named = _source_hash(source), self._rules.named_sources
        return key if not named or source in named else _lane_hash(key % LANES)

    def _drop_repeated(self, sifted: Sifted, keys: list[int], times: list[float]) -> None:
        """By arrival where that is known: a sender is free to say that it observed a page a
        hundred times in a hundred minutes, all at once."""
        repeated = self._debouncer.repeated(np.array(keys, np.uint64), np.array(times, np.float64))
        sifted.repeated = int(np.count_nonzero(repeated))
        if sifted.repeated:
            pairs = zip(sifted.accepted, repeated.tolist(), strict=True)
            sifted.accepted = [signal for signal, again in pairs if not again]

    def _over_limit_reason(self, source: str, verdict: Verdict) -> str:
        if verdict is Verdict.REPORT_OTHERS:
            return (
                "the sources that FRESHET_SIGNAL_SOURCES does not name send too much together, "
                f"more than {self._limiter.others_per_second:g} signals a second or "
                f"{self._limiter.others_share:g} to each of a named one: they are dropped, and one "
                f"in {REPORT_SECONDS:g} s is put here (FRESHET_SIGNALS_FROM_OTHERS_PER_SECOND, "
                "FRESHET_SIGNALS_FROM_OTHERS_SHARE)"
            )
        return (
            f"source {source!r} sends more than {self._limiter.per_second:g} signals a second: "
            f"they are dropped, and one in {REPORT_SECONDS:g} s is put here "
            "(FRESHET_SIGNALS_PER_SOURCE_PER_SECOND)"
        )


@lru_cache(maxsize=1 << 16)
def _source_hash(source: str) -> int:
    return xxhash.xxh3_64_intdigest(source.encode())


@lru_cache(maxsize=LANES)
def _lane_hash(lane: int) -> int:
    # No source is so called: the contract takes no control characters.
    return xxhash.xxh3_64_intdigest(b"\0lane %d" % lane)
