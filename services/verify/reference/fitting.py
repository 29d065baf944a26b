"""What is learned of pages and hosts: the fits of shared/policy on plain records."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.verify.reference.rules import Effects
from services.verify.reference.state import DEPTH, SOURCES, HostState, PageState, State
from shared.policy.estimation.host_priors import HostPriors, fit_host_priors, host_sums
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map
from shared.policy.estimation.smoothed import signal_rates
from shared.policy.estimation.sources import effective_signal_evidence, usual_mix
from shared.units import SECONDS_PER_DAY

PRIOR_TOLERANCE: Final = 0.01
"""A prior that moves by less, relatively, stays as it was."""

MOST_FOLLOWERS: Final = 10_000
"""Pages that follow their hosts' priors at once: those with the fewest crawl records."""

Floats = NDArray[np.float64]


def learn(state: State, effects: Effects) -> None:
    """Fit pages with new crawl records; find the signal rates of all that were touched."""
    _assign(*_fit(state, [state.pages[page] for page in sorted(effects.observed)]))
    touched = [state.pages[page] for page in sorted(effects.touched)]
    latest = np.array([max(page.last_signal_at, page.last_attempt_at) for page in touched])
    watched = np.maximum(latest - np.array([page.first_seen_at for page in touched]), 0.0)
    counts = np.array([page.signal_count for page in touched])
    for page, rate in zip(
        touched, signal_rates(counts, watched / SECONDS_PER_DAY).tolist(), strict=True
    ):
        page.signal_rate = rate
    known = [page for page in touched if page.records]
    for page, evidence in zip(known, _mean_evidence(state, known).tolist(), strict=True):
        page.signal_evidence = evidence


def refit(state: State, material_change: float) -> None:
    """Fit what hosts say of their pages anew, and let the pages of those that moved follow."""
    hosts = list(state.hosts.values())
    pages = [page for page in state.pages.values() if page.records]
    if not pages:
        return
    before = _priors(hosts)
    after = fit_host_priors(
        host_sums(
            np.arange(len(pages)),
            _owners(pages, hosts),
            len(hosts),
            np.array([page.unsignalled_change_rate for page in pages]),
            np.array([page.source_evidence for page in pages], np.float32).reshape(-1, SOURCES),
            np.array([page.posterior_shape for page in pages], np.float32),
            *_rings(pages),
            before,
        )
    )
    moved = _is_beyond(after, before, PRIOR_TOLERANCE)
    far = moved & _is_beyond(after, before, material_change)
    for row in np.flatnonzero(moved).tolist():
        host = hosts[row]
        host.prior_shape, host.prior_rate = float(after.shape[row]), float(after.rate[row])
        host.precision = after.precision[row].copy()
    beyond = {hosts[row].name for row in np.flatnonzero(far).tolist()}
    _follow(state, [page for page in pages if page.host in beyond], material_change)


def _follow(state: State, pages: list[PageState], material_change: float) -> None:
    """Fit pages of hosts that moved; those stay as they were that hardly change."""
    if len(pages) > MOST_FOLLOWERS:
        pages = sorted(pages, key=lambda page: len(page.records))[:MOST_FOLLOWERS]
    pages, fitted = _fit(state, pages)
    evidence = _mean_evidence(state, pages, fitted.signal_evidence)
    for row, page in enumerate(pages):
        news = (
            (float(fitted.unsignalled_change_rate[row]), page.unsignalled_change_rate),
            (float(evidence[row]), page.signal_evidence),
        )
        if any(abs(new - old) > material_change * old for new, old in news):
            _assign([page], MapColumns(*(column[row : row + 1] for column in fitted)))
            page.signal_evidence = float(evidence[row])


def _fit(state: State, pages: list[PageState]) -> tuple[list[PageState], MapColumns]:
    fitted = MapColumns(
        np.zeros(len(pages)),
        np.zeros((len(pages), SOURCES), np.float32),
        np.zeros(len(pages), np.float32),
    )
    if pages:
        hosts = [state.hosts[name] for name in sorted({page.host for page in pages})]
        fit_rings_map(
            np.arange(len(pages)), _owners(pages, hosts), *_rings(pages), _priors(hosts), fitted
        )
    return pages, fitted


def _assign(pages: Sequence[PageState], fitted: MapColumns) -> None:
    for row, page in enumerate(pages):
        page.unsignalled_change_rate = float(fitted.unsignalled_change_rate[row])
        page.source_evidence = fitted.signal_evidence[row].tolist()
        page.posterior_shape = float(fitted.posterior_shape[row])


def _mean_evidence(
    state: State, pages: Sequence[PageState], evidence: NDArray[np.float32] | None = None
) -> Floats:
    """κ̄ of pages, by their own mix of sources or their host's."""
    if not pages:
        return np.empty(0)
    if evidence is None:
        evidence = np.array([page.source_evidence for page in pages], np.float32)
    own = np.array([page.totals for page in pages], np.float64)
    of_host = usual_mix(np.array([state.hosts[page.host].signals for page in pages]))
    mix = np.where(own.sum(axis=1, keepdims=True) > 0, own, of_host)
    return effective_signal_evidence(mix, evidence)


def evidence_of(host: HostState) -> float:
    """κ̄ of a signal of whatever source at a page of the host that has no crawl record."""
    mix = usual_mix(host.signals[np.newaxis])
    return float(effective_signal_evidence(mix, -np.log1p(-host.precision[np.newaxis]))[0])


def _rings(
    pages: Sequence[PageState],
) -> tuple[NDArray[np.float32], NDArray[np.uint16], NDArray[np.uint8], NDArray[np.int32]]:
    """Crawl records of pages as the fits take them: intervals, signals, changes, how many."""
    count = len(pages)
    intervals = np.zeros((count, DEPTH), np.float32)
    signals = np.zeros((count, DEPTH, SOURCES), np.uint16)
    changed = np.zeros((count, DEPTH), np.uint8)
    for row, page in enumerate(pages):
        for place, record in enumerate(page.records):
            intervals[row, place] = record.interval_days
            signals[row, place] = record.signals
            changed[row, place] = record.changed
    return intervals, signals, changed, np.array([len(p.records) for p in pages], np.int32)


def _owners(pages: Sequence[PageState], hosts: Sequence[HostState]) -> NDArray[np.int64]:
    rows = {host.name: row for row, host in enumerate(hosts)}
    return np.array([rows[page.host] for page in pages], np.int64)


def _priors(hosts: Sequence[HostState]) -> HostPriors:
    return HostPriors(
        np.array([host.prior_shape for host in hosts]),
        np.array([host.prior_rate for host in hosts]),
        np.array([host.precision for host in hosts]).reshape(-1, SOURCES),
    )


def _is_beyond(new: HostPriors, old: HostPriors, tolerance: float) -> NDArray[np.bool_]:
    far = [
        np.abs(after - before) > tolerance * before for after, before in zip(new, old, strict=True)
    ]
    return np.asarray(far[0] | far[1] | far[2].any(axis=1))
