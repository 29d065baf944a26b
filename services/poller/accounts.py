"""What a stream costs and brings, from one time that it is written down to the next."""

from dataclasses import dataclass, field
from typing import Final

from yarl import URL

from services.poller import metrics
from services.poller.sites.prices import Prices
from shared.contracts.identity import PageIdentity, identify
from shared.runtime.pings import Ping
from shared.store.stream_cursors import StreamNews
from shared.units import SECONDS_PER_DAY

VALUED_SECONDS: Final = 60.0
"""Its pages are looked up so often, to tell what signals of them are worth."""

MOST_VALUED: Final = 500
"""Signals whose pages are looked up then; they stand for those that came after them."""

_REASON: Final = 200
"""Characters of a reason that are kept."""


def shown(url: str) -> str:
    """A stream's URL without what may be secret of it."""
    return str(URL(url).with_user(None).with_query(None).with_fragment(None))


@dataclass(slots=True)
class _Brought:
    """By one source."""

    signals: int = 0
    exact: int = 0
    delay_seconds: float = 0.0
    named: int = 0
    """Signals since its pages were valued."""
    noted: int = 0
    """Of them, the first."""
    pages: dict[int, PageIdentity] = field(default_factory=dict)
    """Of those."""
    worth: float = 0.0
    worth_signals: float = 0.0
    worth_days: float = 0.0


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
        self._has_events = False
        """Whether the connection at hand has brought one."""
        self.is_new = True
        """Whether there is something to write down."""
        self._begin()

    def _begin(self) -> None:
        self._connections = self._gaps = self._bytes = self._events = self._bad = 0
        self._brought: dict[str, _Brought] = {self._source: _Brought()}

    def connecting(self) -> None:
        """The server is asked for the stream."""
        metrics.CONNECTIONS.labels(self._source).inc()
        self._connections += 1
        self._has_events, self.is_new = False, True

    def disconnected(self, reason: str) -> None:
        """The connection is over; a failure, where it brought no event."""
        if not self._has_events:
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
        self._has_events = self.is_new = True

    def published(self, source: str, pings: list[Ping], now: float) -> None:
        """The broker has these signals of the stream's source, or of another that it has besides.

        Args:
            source: of the signals.
            pings: some.
            now: Unix seconds.
        """
        times = [ping.observed_at for ping in pings if ping.observed_at is not None]
        brought = self._brought.setdefault(source, _Brought())
        brought.signals += len(pings)
        brought.exact += len(times)
        brought.delay_seconds += sum(max(now - time, 0.0) for time in times)
        brought.named += len(pings)
        noted = pings[: MOST_VALUED - brought.noted]
        brought.noted += len(noted)
        brought.pages |= {page.page_id: page for page in (identify(ping.url) for ping in noted)}
        if times:
            metrics.DELAY_SECONDS.labels(self._source).set(now - max(times))

    async def news(self, now: float) -> list[StreamNews]:
        """What is new, at a time in Unix seconds; the stream's own source first."""
        if now - self._valued_at >= VALUED_SECONDS:
            await self._value(now)
        own, *others = [
            StreamNews(
                source,
                self._url,
                now,
                0,
                "",
                signals=brought.signals,
                exact_signals=brought.exact,
                delay_seconds=brought.delay_seconds,
                worth=brought.worth,
                worth_signals=brought.worth_signals,
                worth_days=brought.worth_days,
            )
            for source, brought in self._brought.items()
        ]
        counted = own._replace(
            failures=self._failures,
            reason=self._reason,
            connections=self._connections,
            gaps=self._gaps,
            bytes_read=self._bytes,
            events=self._events,
            bad_events=self._bad,
        )
        return [counted, *others]

    def written(self) -> None:
        """All of `news` is in the database."""
        before = self._brought
        self._begin()
        for source, brought in before.items():
            waiting = (brought.named, brought.noted, brought.pages)
            self._brought[source] = _Brought(0, 0, 0.0, *waiting)
        self.is_new = False

    async def _value(self, now: float) -> None:
        days = (now - self._valued_at) / SECONDS_PER_DAY
        self._valued_at = now
        price = await self._prices.of_slot()
        for brought in self._brought.values():
            pages, share = list(brought.pages.values()), brought.named / max(brought.noted, 1)
            brought.named, brought.noted, brought.pages = 0, 0, {}
            worth = None
            if price > 0.0:
                worth = await self._prices.worth_of_known(pages, price)
            if worth is None:
                continue
            brought.worth += worth * share
            brought.worth_signals += len(pages) * share
            brought.worth_days += days
