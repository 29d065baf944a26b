"""What is learned of pages and hosts: the fits of shared/policy on plain records."""

from collections.abc import Collection, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.verify.reference.factors import refit_factors
from services.verify.reference.rules import Effects
from services.verify.reference.state import DEPTH, SOURCES, HostState, PageState, State
from shared.policy.estimation.host_priors import HostPriors, fit_host_priors, host_sums
from shared.policy.estimation.map_fit import MapColumns, fit_rings_map
from shared.policy.estimation.sources import effective_signal_evidence, usual_mix

PRIOR_TOLERANCE: Final = 0.01
"""A prior that moves by less, relatively, stays as it was."""

MOST_FOLLOWERS: Final = 10_000
"""Pages that follow their hosts' priors at once: those with the fewest crawl records."""

Floats = NDArray[np.float64]


def learn(state: State, effects: Effects) -> None:
    """Fit pages with new crawl records; find the evidence of all that were touched."""
    _assign(*_fit(state, [state.pages[page] for page in sorted(effects.observed)]))
    touched = [state.pages[page] for page in sorted(effects.touched)]
    known = [page for page in touched if page.records]
    for page, evidence in zip(known, _mean_evidence(state, known).tolist(), strict=True):
        page.signal_evidence = evidence


def refit(state: State, material_change: float, shards: Collection[int]) -> None:
    """Fit what hosts say of their pages anew, and let the pages of those that moved follow.

    Args:
        state: of everything.
        material_change: relative, that pages follow.
        shards: that are fitted together.
    """
    hosts = [host for host in state.hosts.values() if host.shard in shards]
    pages = [page for page in state.pages.values() if page.records and page.shard in shards]
    if pages:
        _refit_priors(state, hosts, pages, material_change)
    _refit_beliefs(hosts)


def _refit_priors(
    state: State, hosts: Sequence[HostState], pages: list[PageState], material_change: float
) -> None:
    before = _priors(hosts)
    believed = [_prior_of(state.hosts[page.host], page) for page in pages]
    refit_factors(hosts, pages)
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
            np.array([state.hosts[page.host].factor_of(page) for page in pages]),
        ),
        _sites(hosts),
        _sources(hosts),
    )
    moved = _is_beyond(after, before, PRIOR_TOLERANCE)
    for row in np.flatnonzero(moved).tolist():
        host = hosts[row]
        host.prior_shape, host.prior_rate = float(after.shape[row]), float(after.rate[row])
        host.precision = after.precision[row].copy()
    followers = [
        page
        for page, old in zip(pages, believed, strict=True)
        if _is_other(_prior_of(state.hosts[page.host], page), old, material_change)
    ]
    _follow(state, followers, material_change)


def _refit_beliefs(hosts: Sequence[HostState]) -> None:
    """Find what share of what is predicted of pages that never changed is found: by host, with that
    of its site behind it, and behind that everything's. Only where signals of the site prove
    true."""
    everything = _share(1.0, hosts)
    sites = _sites(hosts).tolist()
    for site in set(sites):
        theirs = [host for host, number in zip(hosts, sites, strict=True) if number == site]
        parent = _share(everything, theirs)
        true = sum(float(host.signals[host.precision >= 0.1].sum()) for host in theirs)
        is_used = true >= 5.0
        for host in theirs:
            new = min(max(_share(parent, [host]), 0.2), 1.0) if is_used else 1.0
            if abs(new - host.quiet_belief) > PRIOR_TOLERANCE * host.quiet_belief:
                host.quiet_belief = new


def _share(parent: float, hosts: Sequence[HostState]) -> float:
    found = sum(host.quiet_found for host in hosts)
    predicted = sum(host.quiet_predicted for host in hosts)
    return (5.0 * parent + found) / (5.0 + predicted)


def _sites(hosts: Sequence[HostState]) -> NDArray[np.int64]:
    """Hosts of one site have one number: those whose last two labels are the same."""
    sites = []
    for host in hosts:
        *_, last = labels = host.name.split(":")[0].split(".")
        is_address = "[" in host.name or last.isdigit()
        sites.append(host.name if is_address else ".".join(labels[-2:]))
    return np.unique(np.array(sites), return_inverse=True)[1]


def _sources(hosts: Sequence[HostState]) -> NDArray[np.int64]:
    """Slots of sources of one name have one number, wherever they are; the last is for all sources
    that have none of their own, and of a slot that nobody has nothing is known."""
    slots = []
    for host in hosts:
        free = SOURCES - 1 - len(host.sources)
        slots.append([*(f"source {name}" for name in host.sources), *["free"] * free, "others"])
    return np.unique(np.array(slots), return_inverse=True)[1].reshape(len(hosts), SOURCES)


def _prior_of(host: HostState, page: PageState) -> tuple[float, ...]:
    """What is believed of a page by its host: shape, rate in days, precision by source."""
    return (host.prior_shape, host.prior_rate / host.factor_of(page), *host.precision.tolist())


def _is_other(new: tuple[float, ...], old: tuple[float, ...], tolerance: float) -> bool:
    return any(abs(a - b) > tolerance * b for a, b in zip(new, old, strict=True))


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
        believed = [_prior_of(state.hosts[page.host], page) for page in pages]
        shape, rate, *precision = map(np.array, zip(*believed, strict=True))
        own, priors = np.arange(len(pages)), HostPriors(shape, rate, np.stack(precision, axis=1))
        fit_rings_map(own, own, *_rings(pages), priors, fitted)
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
