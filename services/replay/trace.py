"""What a replay is given: pages, and everything that happened to them, as columns.

Times are days from the beginning, rates per day. Nothing here is known to a policy unless it may
observe it: signals when they arrive, changes when a crawl finds them.
"""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from services.replay.truth import matched_counts
from services.world.events import NO_REQUESTS, EventStream, Requests
from services.world.pages import WorldPages
from services.world.trace import LONGEST_DAYS, read_events, read_pages
from shared.policy.model import PageParameters
from shared.rules.sites import sites_of

CHANGE, SIGNAL = 0, 1

NO_LIMIT = np.inf

SMOOTHING_CHANGES = 0.01
"""Added to the changes that no signal announced, so that no page counts as certain never to."""

SMOOTHING_SIGNALS = 0.05
"""Added to true and false signals of a page before its precision is taken."""

HIGHEST_PRECISION = 0.999


@dataclass(frozen=True, slots=True)
class Trace:
    """Pages and their events; one row a page, one element an event, rising in time."""

    importance: NDArray[np.float64]
    host: NDArray[np.int64]
    """Row in `host_names`."""
    site: NDArray[np.int64]
    """Of each host: which hosts are subdomains of one site."""
    host_names: tuple[str, ...]
    urls: tuple[str, ...]
    """Empty for a population that has none."""
    born_days: NDArray[np.float64]
    """When the page becomes known; 0: from the start."""
    held: NDArray[np.bool_]
    """Whether a fresh copy is held when the page becomes known."""
    host_limit: NDArray[np.float64]
    """Crawls a day that each host allows; infinite: any."""
    change_days: NDArray[np.float64]
    change_pages: NDArray[np.int64]
    signal_days: NDArray[np.float64]
    signal_pages: NDArray[np.int64]
    days: float
    """Length of the trace."""
    known: PageParameters | None = None
    """The parameters that the events were made from, where they were."""
    request_days: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    """When somebody asked for a page; no policy knows of it."""
    request_pages: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    signal_sources: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Number of the source of each signal; absent: all of one."""
    judged_from: float = 0.0
    """Day from which on policies are judged; what lies before is how their copies came about."""

    def __post_init__(self) -> None:
        if self.signal_sources.size == 0:
            object.__setattr__(self, "signal_sources", np.zeros(self.signal_days.size, np.int64))
        if self.signal_sources.size != self.signal_days.size:
            raise ValueError(
                f"the trace has {self.signal_days.size} signals, but {self.signal_sources.size} "
                "sources of signals"
            )

    def __len__(self) -> int:
        return int(self.importance.size)

    def merged_events(
        self, slots: NDArray[np.int64] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int8]]:
        """(days, pages, kinds) of all events; of those at one time the changes come first.

        `slots` of the signals' sources are added to their kind.
        """
        days = np.concatenate([self.change_days, self.signal_days])
        pages = np.concatenate([self.change_pages, self.signal_pages])
        kinds = np.repeat(
            np.array([CHANGE, SIGNAL], np.int8), [self.change_days.size, self.signal_days.size]
        )
        if slots is not None:
            kinds[self.change_days.size :] += slots.astype(np.int8)
        order = np.argsort(days, kind="stable")
        return days[order], pages[order], kinds[order]

    def digest(self) -> str:
        """Names the pages, their hosts and the events, whatever file they came from."""
        digest = hashlib.sha256("\n".join([*self.urls, "", *self.host_names]).encode())
        for column in (
            self.importance,
            self.change_days,
            self.change_pages,
            self.signal_days,
            self.signal_pages,
            self.signal_sources,
            self.request_days,
            self.request_pages,
            self.host,
            self.site,
            self.born_days,
            self.held,
            self.host_limit,
            np.array([self.days, self.judged_from]),
        ):
            # Its size tells where a column ends and the next one begins.
            digest.update(column.size.to_bytes(8, "little") + column.tobytes())
        return digest.hexdigest()[:16]

    def until(self, days: float) -> "Trace":
        """The first `days` of the trace."""
        changes = int(np.searchsorted(self.change_days, days, side="right"))
        signals = int(np.searchsorted(self.signal_days, days, side="right"))
        requests = int(np.searchsorted(self.request_days, days, side="right"))
        return replace(
            self,
            change_days=self.change_days[:changes],
            change_pages=self.change_pages[:changes],
            signal_days=self.signal_days[:signals],
            signal_pages=self.signal_pages[:signals],
            signal_sources=self.signal_sources[:signals],
            days=days,
            request_days=self.request_days[:requests],
            request_pages=self.request_pages[:requests],
        )


def population_trace(
    importance: NDArray[np.float64],
    change_days: NDArray[np.float64],
    change_pages: NDArray[np.int64],
    signal_days: NDArray[np.float64],
    signal_pages: NDArray[np.int64],
    days: float,
    known: PageParameters | None = None,
) -> Trace:
    """A trace of pages without names, all on one host without limit, all held at day 0."""
    count = importance.size
    return Trace(
        importance=importance,
        host=np.zeros(count, np.int64),
        site=np.zeros(1, np.int64),
        host_names=("population",),
        urls=(),
        born_days=np.zeros(count),
        held=np.ones(count, np.bool_),
        host_limit=np.full(1, NO_LIMIT),
        change_days=change_days,
        change_pages=change_pages,
        signal_days=signal_days,
        signal_pages=signal_pages,
        days=days,
        known=known,
    )


def world_trace(
    pages: WorldPages,
    stream: EventStream,
    days: float | None = None,
    known: PageParameters | None = None,
    requests: Requests = NO_REQUESTS,
) -> Trace:
    """A trace of a world's pages and the events of its stream, to `days` or to the last event.

    Raises:
        ValueError: the trace has no length: no events and no `days`; or too great a one.
    """
    end = np.inf if days is None else days
    changes, signals = stream.changes(end), stream.signals(end)
    asked = int(np.searchsorted(requests.days, end, side="right"))
    times = (changes.days, signals.days, requests.days[:asked])
    last = max((float(part[-1]) for part in times if part.size), default=0.0)
    length = np.ceil(last) if days is None else days
    if not 0 < length < np.inf:
        raise ValueError("nothing happens after day 0: give --days to say how long the trace is")
    if length > LONGEST_DAYS:
        raise ValueError(f"a trace of {length:g} days is too long: {LONGEST_DAYS:g} at most")
    names = tuple(sorted(set(pages.hosts)))
    row = {name: number for number, name in enumerate(names)}
    return Trace(
        importance=pages.importance,
        host=np.array([row[name] for name in pages.hosts], np.int64),
        site=sites_of(names),
        host_names=names,
        urls=tuple(pages.urls),
        born_days=np.zeros(len(pages)),
        held=pages.held,
        host_limit=np.full(len(names), NO_LIMIT),
        change_days=changes.days,
        change_pages=changes.pages,
        signal_days=signals.days,
        signal_pages=signals.pages,
        days=float(length),
        known=known,
        request_days=requests.days[:asked],
        request_pages=requests.pages[:asked],
        signal_sources=signals.sources,
    )


def read_trace(pages_file: Path, events_file: Path, days: float | None = None) -> Trace:
    """Read a trace from CSV or Parquet files; see `services.world.trace`.

    Raises:
        TraceError: a file, column or row that cannot be read; names it.
        ValueError: as for `world_trace`.
    """
    pages = read_pages(pages_file)
    stream = read_events(events_file, pages)
    return world_trace(pages, stream, days, requests=stream.requests)


def trace_parameters(trace: Trace) -> PageParameters:
    """What an oracle knows: the parameters a population was made from, or those of the trace.

    From the whole trace, of each page since it is known and policies are judged: a signal is true
    if a change of its page not yet spoken for lies within the day before (sitemaps announce at
    midnight); changes left over make α, signals γ, and true signals the precision.
    """
    if trace.known is not None:
        return trace.known
    days, pages, kinds = trace.merged_events()
    since = np.maximum(trace.born_days, trace.judged_from)
    counts = days > since[pages]
    signals, true_signals, unsignalled = matched_counts(
        days[counts], pages[counts], kinds[counts], len(trace)
    )
    precision = (true_signals + SMOOTHING_SIGNALS) / (signals + 2 * SMOOTHING_SIGNALS)
    precision = np.where(signals > 0, np.minimum(precision, HIGHEST_PRECISION), 0.0)
    watched = np.maximum(trace.days - since, 1.0)
    return PageParameters.from_columns(
        trace.importance,
        (unsignalled + SMOOTHING_CHANGES) / watched,
        -np.log1p(-precision),
        signals / watched,
    )


def complete_pages(parameters: PageParameters) -> NDArray[np.bool_]:
    """[K]'s W°: pages of which (nearly) every change sends a signal, and no other thing does."""
    nearly = 0.95
    return np.asarray((parameters.precision >= nearly) & (parameters.recall >= nearly))
