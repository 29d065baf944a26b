"""What schedulers have in memory at the end is what Postgres and the topics say: page by page.

A scheduler applies the same messages as the estimator, in batches of its own, and knows what is
learned from announcements. So times, counts of failures, weights, bounds, limits and pauses are the
same to the digit; what is learned is off by as much as announcements are (`announced`), and what is
kept in single precision by its rounding. The burst multiplier that holds since a page's last crawl
is of the host's tables as the scheduler knew them then, before or after the estimator announced
others: so it is one that was announced at some time for pages of that age. That of a page that
never changed follows its host's at once. How many signals of several count that came about when a
page was crawled depends on the batches: whether there are any does not.
"""

import math
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from services.verify.checks.announced import Owners, drift_since, standing
from services.verify.checks.finding import Finding
from services.verify.ledger import Ledger, first_answers
from services.verify.reference.fitting import evidence_of
from services.verify.reference.quiet_crawls import UNCHANGED, age_of, told_multipliers
from services.verify.reference.state import HostState, PageState, State
from shared.contracts.identity import identify
from shared.contracts.messages import HostParameters
from shared.contracts.topics import HOST_PARAMETERS
from shared.runtime.settings import Settings
from shared.store.page_status import ACTIVE, REMOVED, STATUS_NAMES

ROUNDING: Final = 1e-6
"""Of what is kept in single precision."""

SIGNAL_ROUNDING: Final = 5e-12
"""Of a Unix time, some milliseconds: where a page has several sources, memory keeps the times of
its signals in steps of 1/128 s."""

MULTIPLIER_ROUNDING: Final = 1e-3
"""Burst multipliers are kept in steps."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """A page as its scheduler described it."""

    url: str
    at: float
    """Unix seconds."""
    page: dict[str, Any] | None
    """None: no scheduler has it."""


def remembered(
    ledger: Ledger,
    stored: State,
    owners: Owners,
    sample: Sequence[Remembered],
    leave: Collection[str] = (),
) -> Finding:
    """Pages in the memory of schedulers.

    Args:
        ledger: of the run.
        stored: what Postgres has.
        owners: of all shards, among the estimators.
        sample: of the pages, taken when nothing was under way any more.
        leave: names of what is not compared: estimators of another version did not keep it.
    """
    settings = ledger.settings
    answered = first_answers(ledger)
    multipliers: dict[str, list[list[float]]] = defaultdict(list)
    for message in standing(HostParameters, ledger.raw[HOST_PARAMETERS.name]):
        multipliers[message.host].append(message.burst_multipliers)
    waiting = {
        asked.request.page_id: asked.request.requested_at + settings.request_timeout_seconds
        for asked in ledger.requests
        if asked.request.request_id not in answered
    }

    def offenders() -> Iterator[str]:
        for one in sample:
            page = stored.pages.get(identify(one.url).page_id)
            is_known = page is not None and page.status != REMOVED
            if page is None or one.page is None or not is_known:
                if is_known or one.page is not None:
                    where = "only in memory" if one.page is not None else "not in memory"
                    yield f"{one.url} is {where}"
                continue
            in_flight = waiting.get(page.page_id, -math.inf) > one.at
            if one.page["in_flight"] != in_flight:
                yield f"{one.url}: in flight is {one.page['in_flight']}, the topics say {in_flight}"
            host = stored.hosts[page.host]
            first = min(owners.get(page.shard, ()), default=0)
            drift = drift_since(owners, page.shard, first, settings.material_change)
            learned = _learned(one.page, page, host, multipliers[page.host], drift)
            if page.status != ACTIVE:
                learned = iter(())  # nobody crawls it, so nothing of it is announced
            for name, has, should, tolerance in (
                *_compared(one.page, page, host, settings),
                *learned,
            ):
                if name not in leave and not _close(has, should, tolerance):
                    yield f"{one.url}: {name} is {has}, Postgres says {should}"

    return Finding.of(
        "memory",
        "schedulers know of pages what Postgres and the topics say",
        offenders(),
        looked_at=len(sample),
    )


Compared = tuple[str, Any, Any, float]
"""Name, what a scheduler has, what Postgres has, relative tolerance."""


def _compared(
    has: dict[str, Any], page: PageState, host: HostState, settings: Settings
) -> Iterator[Compared]:
    default_days = settings.default_max_age_days or math.inf
    days = page.max_age_days if page.max_age_days < math.inf else default_days
    yield "status", has["status"], STATUS_NAMES[page.status], 0.0
    yield "last crawl", has["last_crawled_at"], page.last_crawled_at, 0.0
    yield "last signal", has["last_signal_at"], page.last_signal_at, SIGNAL_ROUNDING
    yield "failures", has["failures"], page.failures, 0.0
    yield "404s", has["misses"], page.misses, 0.0
    yield "any signals", has["signals"] > 0, page.signals > 0, 0.0
    yield "importance", has["importance"], page.importance, ROUNDING
    yield "class", has.get("page_class") or "", page.page_class, 0.0
    yield "bound", has["max_age_days"], days, ROUNDING
    rate = host.rate(settings.default_host_crawls_per_second)
    yield "host's limit", has["host"]["max_crawls_per_second"], rate, 0.0
    yield "host's pause", has["host"]["blocked_until"], host.left_alone_until, 0.0


def _learned(
    has: dict[str, Any],
    page: PageState,
    host: HostState,
    multipliers: Sequence[Sequence[float]],
    drift: float,
) -> Iterator[Compared]:
    alpha = host.prior_shape / host.prior_rate * host.quiet_belief * host.factor_of(page)
    kappa = evidence_of(host)
    # Its host's rate and the factor of its directory, and of its activity, are off by so much each.
    off = (1.0 + drift) ** 3 - 1.0
    if page.records:
        off = drift
        own, kappa = page.unsignalled_change_rate, page.signal_evidence
        known = [page.multiplier, 1.0, *(ages[age_of(page)] for ages in multipliers)]
        never = told_multipliers(host)[UNCHANGED]
        if age_of(page) == UNCHANGED and never != 1.0:
            # Its host's multiplier is off by so much as well.
            off = (1.0 + drift) ** 2 - 1.0
            known.append(never)
        alpha = min(
            (own * multiplier for multiplier in known),
            key=lambda one: abs(one - has["unsignalled_change_rate"]),
        )
    yield "α", has["unsignalled_change_rate"], alpha, off + MULTIPLIER_ROUNDING
    yield "γ", has["signal_rate"], page.signal_rate, drift + ROUNDING
    if page.signal_rate > 0:  # without signals κ means nothing
        yield "κ", has["signal_evidence"], kappa, drift + ROUNDING


def _close(has: Any, should: Any, tolerance: float) -> bool:
    if isinstance(should, str | bool):
        return bool(has == should)
    # JSON has no infinity: what never was, or has no bound, is not said.
    if has is None or math.isinf(should):
        return has is None and math.isinf(should)
    return bool(abs(has - should) <= tolerance * abs(should))
