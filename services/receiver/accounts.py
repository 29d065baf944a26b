"""What each source has sent, from one time that it is written down to the next."""

from collections.abc import Sequence
from dataclasses import dataclass

from shared.runtime.pings import Ping
from shared.store.ping_accounts import PingNews


@dataclass(slots=True)
class _Sent:
    """By one source; fields as in `PingNews`."""

    signals: int = 0
    exact_signals: int = 0
    delay_seconds: float = 0.0

    def add(self, signals: int, exact_signals: int, delay_seconds: float) -> None:
        """Add so much."""
        self.signals += signals
        self.exact_signals += exact_signals
        self.delay_seconds += delay_seconds


class PingAccounts:
    """Counts by source. What is not written down is kept for the next time.

    Sources are the receiver's own and those that have tokens, so they are few.
    """

    def __init__(self) -> None:
        self._sent: dict[str, _Sent] = {}

    def published(self, source: str, pings: Sequence[Ping], now: float) -> None:
        """The broker has these signals.

        Args:
            source: of the signals.
            pings: some.
            now: Unix seconds.
        """
        times = [ping.observed_at for ping in pings if ping.observed_at is not None]
        late = sum(max(now - time, 0.0) for time in times)
        self._sent.setdefault(source, _Sent()).add(len(pings), len(times), late)

    def taken(self) -> list[PingNews]:
        """What is new, which is begun anew: `give_back` what cannot be written down."""
        sent, self._sent = self._sent, {}
        return [
            PingNews(source, one.signals, one.exact_signals, one.delay_seconds)
            for source, one in sent.items()
        ]

    def give_back(self, news: Sequence[PingNews]) -> None:
        """Keep what was not written down."""
        for one in news:
            sent = self._sent.setdefault(one.source, _Sent())
            sent.add(one.signals, one.exact_signals, one.delay_seconds)
