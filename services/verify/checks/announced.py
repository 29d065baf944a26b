"""What schedulers were told of pages and hosts is, but for little, what Postgres has.

An estimator announces what has moved by more than `material_change` since it was announced last.
Whoever loads a shard takes what the database has for announced: so after each change of owners the
last announcement may be as much further off.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.verify.checks.finding import Finding
from services.verify.ledger import Ledger
from services.verify.records import decoded
from services.verify.reference.fitting import evidence_of
from services.verify.reference.quiet_crawls import told_multipliers
from services.verify.reference.state import SOURCES, HostState, PageState, State, activity_of
from shared.contracts.messages import HostParameters, PageParameters
from shared.contracts.topics import HOST_PARAMETERS, PAGE_PARAMETERS
from shared.store.page_status import ACTIVE

ROUNDING: Final = 1e-9

Owners = Mapping[int, Sequence[int]]
"""Shard → the epochs of its owners."""

M = TypeVar("M", PageParameters, HostParameters)


def page_parameters(
    ledger: Ledger,
    stored: State,
    owners: Owners,
    material_change: float,
    leave: Collection[str] = (),
) -> Finding:
    """The last announcement of each active page that crawls or signals say something of.

    Args:
        ledger: of the run.
        stored: what Postgres has.
        owners: of all shards.
        material_change: relative change that is announced.
        leave: names of what is not compared: estimators of another version did not announce it.
    """
    last = {
        message.page_id: message
        for message in standing(PageParameters, ledger.raw[PAGE_PARAMETERS.name])
    }
    told = [
        page
        for page in stored.pages.values()
        if page.status == ACTIVE and (page.records or page.signal_rate > 0)
    ]

    def offenders() -> Iterator[str]:
        for page in told:
            message = last.get(page.page_id)
            who = f"page {page.page_id} (shard {page.shard})"
            if message is None:
                yield f"{who} was never announced"
                continue
            allowed = allowed_drift(owners, page.shard, message.epoch, material_change)
            for name, said, known in _of_page(page, message):
                is_off = said is None or abs(known - said) > allowed * said + ROUNDING
                if name not in leave and is_off:
                    yield f"{who}: {name} {said} was announced, {known} is known"

    return Finding.of(
        "page parameters",
        "what is announced of pages is within the material change of what Postgres has",
        offenders(),
        looked_at=len(told),
    )


def host_parameters(
    ledger: Ledger, stored: State, owners: Owners, material_change: float
) -> Finding:
    """The last announcement of each host; see `page_parameters`.

    Of a host that was never announced a scheduler believes what holds of an unknown one.
    """
    last = {
        message.host: message
        for message in standing(HostParameters, ledger.raw[HOST_PARAMETERS.name])
    }

    def offenders() -> Iterator[str]:
        for name, host in stored.hosts.items():
            message = last.get(name)
            said = _figures(HostState(name, host.shard)) if message is None else _said(message)
            sources = [] if message is None else message.sources
            if sources != host.sources:
                yield f"host {name}: sources {sources} were announced, {host.sources} are known"
            epoch = 0 if message is None else message.epoch
            allowed = allowed_drift(owners, host.shard, epoch, material_change)
            known = _figures(host)
            off = np.abs(known - said) > allowed * said + ROUNDING
            yield from _factors_off(name, host, message, allowed)
            # A source that never sent a signal has no weight yet.
            off[2 : 2 + SOURCES] &= host.signals > 0
            for place in np.flatnonzero(off).tolist():
                yield f"host {name}: figure {place} is {known[place]}, announced {said[place]}"

    return Finding.of(
        "host parameters",
        "what is announced of hosts is within the material change of what Postgres has",
        offenders(),
        looked_at=len(stored.hosts),
        announced=len(last),
    )


def allowed_drift(owners: Owners, shard: int, epoch: int, material_change: float) -> float:
    """By how much what Postgres has may be off, as a share of what an epoch announced."""
    steps = 1 + _later(owners, shard, epoch)
    return float((1.0 + material_change) ** steps - 1.0)


def drift_since(owners: Owners, shard: int, epoch: int, material_change: float) -> float:
    """By how much what an epoch announced may be off, as a share of what Postgres has.

    An estimator keeps quiet while what it knows is at least `1 - material_change` of what it
    announced.
    """
    steps = 1 + _later(owners, shard, epoch)
    return float((1.0 - material_change) ** -steps - 1.0)


def _later(owners: Owners, shard: int, epoch: int) -> int:
    return sum(other > epoch for other in owners.get(shard, ()))


def standing(kind: type[M], records: Sequence[ConsumerRecord]) -> Iterator[M]:
    """Announcements in order, but for those of estimators that had been replaced."""
    newest: dict[int, int] = {}
    for record, message in decoded(kind, records):
        if message.epoch >= newest.get(record.partition, 0):
            newest[record.partition] = message.epoch
            yield message


def _of_page(page: PageState, message: PageParameters) -> Iterator[tuple[str, float | None, float]]:
    """Name, announced, known."""
    if not page.records:
        yield "activity", message.activity, activity_of(page)
    else:
        yield "α", message.unsignalled_change_rate, page.unsignalled_change_rate
        yield "κ", message.signal_evidence, page.signal_evidence
    yield "γ", message.signal_rate, page.signal_rate


def _said(message: HostParameters) -> NDArray[np.float64]:
    return np.array(
        [
            *(message.unsignalled_change_rate, message.signal_evidence),
            *(*message.source_evidence, *message.burst_multipliers),
        ]
    )


def _factors_off(
    name: str, host: HostState, message: HostParameters | None, allowed: float
) -> Iterator[str]:
    """Factors of a host that are other than announced."""
    believed = HostState(name, host.shard)
    if message is not None:
        believed.activity = message.activity_factors
        pairs = zip(message.directories, message.directory_factors, strict=True)
        believed.directories = dict(pairs)
    for place, (known, said) in enumerate(zip(host.activity, believed.activity, strict=True)):
        if abs(known - said) > allowed * said + ROUNDING:
            yield f"host {name}: factor {place} of activity is {known}, announced {said}"
    for code in sorted(host.directories.keys() | believed.directories.keys()):
        known, said = (one.directories.get(code, 1.0) for one in (host, believed))
        if abs(known - said) > allowed * said + ROUNDING:
            yield f"host {name}: factor of directory {code} is {known}, announced {said}"


def _figures(host: HostState) -> NDArray[np.float64]:
    """What there is to be announced of a host, in the order of the message."""
    return np.array(
        [
            *(host.prior_shape / host.prior_rate * host.quiet_belief, evidence_of(host)),
            *(-np.log1p(-host.precision)),
            *told_multipliers(host),
        ]
    )
