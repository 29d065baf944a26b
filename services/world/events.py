"""What happens in a world: changes of pages and the signals about them, in order of time.

Times are days since the run's beginning.
"""

from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Changes:
    """Meaningful changes, rising in time."""

    days: NDArray[np.float64]
    pages: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.days.size)


@dataclass(frozen=True, slots=True)
class Requests:
    """Times at which somebody asked for a page, rising in time."""

    days: NDArray[np.float64]
    pages: NDArray[np.int64]

    def __len__(self) -> int:
        return int(self.days.size)


NO_REQUESTS = Requests(np.empty(0), np.empty(0, np.int64))


@dataclass(frozen=True, slots=True)
class Signals:
    """Change signals, rising in time."""

    days: NDArray[np.float64]
    pages: NDArray[np.int64]
    sources: NDArray[np.int64]
    """Number of the source's name in the stream's `source_names`."""

    def __len__(self) -> int:
        return int(self.days.size)

    @classmethod
    def merged(cls, parts: list[Self]) -> Self:
        """All of them in order of time."""
        days = np.concatenate([part.days for part in parts])
        order = np.argsort(days, kind="stable")
        return cls(
            days[order],
            np.concatenate([part.pages for part in parts])[order],
            np.concatenate([part.sources for part in parts])[order],
        )


class EventStream(Protocol):
    """Events in two independent streams, each read once from day 0 on."""

    @property
    def source_names(self) -> list[str]:
        """Names of the signal sources."""
        ...

    def changes(self, until: float) -> Changes:
        """The changes since the last call, up to and with `until`."""
        ...

    def signals(self, until: float) -> Signals:
        """The signals since the last call, up to and with `until`."""
        ...


class RecordedStream:
    """Events that are all known beforehand, as from a trace."""

    def __init__(
        self,
        changes: Changes,
        signals: Signals,
        source_names: list[str],
        requests: Requests = NO_REQUESTS,
    ) -> None:
        self.requests = requests
        """Nothing in a world depends on them; a replay counts those that find a fresh copy."""
        self._changes = changes
        self._signals = signals
        self._source_names = source_names
        self._next_change = 0
        self._next_signal = 0

    @property
    def source_names(self) -> list[str]:
        """Names of the signal sources."""
        return self._source_names

    def changes(self, until: float) -> Changes:
        """The changes since the last call, up to and with `until`."""
        start = self._next_change
        end = max(start, int(np.searchsorted(self._changes.days, until, side="right")))
        self._next_change = end
        return Changes(self._changes.days[start:end], self._changes.pages[start:end])

    def signals(self, until: float) -> Signals:
        """The signals since the last call, up to and with `until`."""
        start = self._next_signal
        end = max(start, int(np.searchsorted(self._signals.days, until, side="right")))
        self._next_signal = end
        all_of = self._signals
        return Signals(all_of.days[start:end], all_of.pages[start:end], all_of.sources[start:end])
