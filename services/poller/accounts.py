"""What a stream costs and brings, from one time that it is written down to the next."""

from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Final

from services.poller import metrics
from services.poller.sites.prices import Prices
from shared.contracts.identity import PageIdentity, identify
from shared.runtime.pings import Ping
from shared.runtime.shown_urls import shown
from shared.store.stream_cursors import StreamNews
from shared.units import SECONDS_PER_DAY

VALUED_SECONDS: Final = 60.0
"""Its pages are looked up so often, to tell what signals of them are worth."""

MOST_VALUED: Final = 500
"""Signals whose pages are looked up then; they stand for those that came after them."""

_REASON: Final = 200
"""Characters of a reason that are kept."""


@dataclass(slots=True)
class _Brought:
    """By one source; fields as in `StreamNews`."""

    signals: int = 0
    exact_signals: int = 0
    delay_seconds: float = 0.0
    worth: float = 0.0
    worth_signals: float = 0.0
    worth_days: float = 0.0


@dataclass(slots=True)
class _Named:
    """Signals of one source since its pages were valued."""

    signals: int = 0
    noted: int = 0
    """The first of them."""
    pages: dict[int, PageIdentity] = field(default_factory=dict)
    """Of those."""


class StreamAccount:
    """Counts. What is written down is begun anew; what is not is kept for the next time."""

    def __init__(self, source: str, url: str, prices: Prices, now: float) -> None:
        """Make it.

        Args:
            source: of the stream.
            url: of the stream.
            prices: of crawls, and of what is learned of pages.
            now: Unix seconds.
        """
        self._source = source
        self._url = shown(url)
        self._prices = prices
        self._valued_at = now
        self._failures = 0
        self._reason = ""
        self.has_events = False
        """Whether the connection at hand has brought one."""
        self._named = defaultdict(_Named, {source: _Named()})
        """By source: the stream's own and those that ever had a signal."""
        self.is_new = True
        """Whether there is something to write down."""
        self._begin()

    def _begin(self) -> None:
        self._connections = self._gaps = self._bytes = self._events = self._bad = 0
        self._brought: defaultdict[str, _Brought] = defaultdict(_Brought)

    def connecting(self) -> None:
        """The server is asked for the stream."""
        metrics.CONNECTIONS.labels(self._source).inc()
        self._connections += 1
        self.has_events, self.is_new = False, True

    def disconnected(self, reason: str) -> None:
        """The connection is over; a failure, where it brought no event."""
        if not self.has_events:
            metrics.FAILURES.labels(self._source).inc()
            self._failures += 1
            self._reason = "".join(c for c in reason[:_REASON] if c.isprintable())
            self.is_new = True

    def lost(self) -> None:
        """The server has forgotten our place."""
        metrics.GAPS.labels(self._source).inc()
        self._gaps += 1

    def came(self, size: int) -> None:
        """So many bytes came."""
        metrics.BYTES.labels(self._source).inc(size)
        self._bytes += size

    def event(self, result: str) -> None:
        """An event came, and was a `signal`, `ignored` or `bad`."""
        metrics.EVENTS.labels(self._source, result).inc()
        self._events += 1
        self._bad += result == "bad"
        self._failures, self._reason = 0, ""
        self.has_events = self.is_new = True

    def published(self, source: str, pings: list[Ping], now: float) -> None:
        """The broker has these signals of the stream's source, or of another that it has besides.

        Args:
            source: of the signals.
            pings: some.
            now: Unix seconds.
        """
        times = [ping.observed_at for ping in pings if ping.observed_at is not None]
        brought, named = self._brought[source], self._named[source]
        brought.signals += len(pings)
        brought.exact_signals += len(times)
        brought.delay_seconds += sum(max(now - time, 0.0) for time in times)
        named.signals += len(pings)
        noted = pings[: MOST_VALUED - named.noted]
        named.noted += len(noted)
        named.pages |= {page.page_id: page for page in (identify(ping.url) for ping in noted)}
        if times:
            metrics.DELAY_SECONDS.labels(self._source).set(now - max(times))

    async def news(self, now: float) -> list[StreamNews]:
        """What is new, at a time in Unix seconds; the stream's own source first."""
        # Also where the clock was put back.
        if abs(now - self._valued_at) >= VALUED_SECONDS:
            await self._value(now)
        own = StreamNews(
            self._source,
            self._url,
            now,
            self._failures,
            self._reason,
            self._connections,
            self._gaps,
            self._bytes,
            self._events,
            self._bad,
            **asdict(self._brought[self._source]),
        )
        others = [
            StreamNews(source, self._url, now, 0, "", **asdict(self._brought[source]))
            for source in self._named
            if source != self._source
        ]
        return [own, *others]

    def written(self) -> None:
        """All of `news` is in the database."""
        self._begin()
        self.is_new = False

    async def _value(self, now: float) -> None:
        days = max(now - self._valued_at, 0.0) / SECONDS_PER_DAY
        self._valued_at = now
        price = await self._prices.of_slot()
        for source, one in self._named.items():
            self._named[source] = _Named()
            worth = None
            if price > 0.0:
                worth = await self._prices.worth_of_known(list(one.pages.values()), price)
            if worth is None:
                continue
            share, brought = one.signals / max(one.noted, 1), self._brought[source]
            brought.worth += worth * share
            brought.worth_signals += len(one.pages) * share
            brought.worth_days += days
