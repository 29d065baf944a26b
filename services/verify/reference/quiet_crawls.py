"""What crawls without a signal say of a host's pages: bursts, and belief in quiet ones."""

import math
from typing import Final

import numpy as np

from services.verify.reference.state import HostState, PageState
from shared.policy.estimation.bursts import age_bin, burst_multiplier, trusts_bursts, update_bursts
from shared.units import SECONDS_PER_DAY

UNCHANGED: Final = 0
"""Of `age_of`: no change was ever seen."""


def age_of(page: PageState) -> int:
    """The bin of the time from a page's last change to its last crawl."""
    return int(age_bin((page.last_crawled_at - page.last_changed_at) / SECONDS_PER_DAY))


def note_quiet_crawl(
    host: HostState, page: PageState, age: int, days: float, *, changed: bool
) -> None:
    """A page was crawled, of an age until then, and no signal had come in so many days."""
    rate = page.unsignalled_change_rate
    if math.isnan(rate):
        rate = host.prior_shape / host.prior_rate * host.factor_of(page)
    if age == UNCHANGED:
        _note_unchanged(host, rate * page.multiplier * days, changed=changed)
    tables = host.expected_changes, host.predicted_changes
    update_bursts(*tables, 0, age, rate, days, changed)


def _note_unchanged(host: HostState, predicted: float, *, changed: bool) -> None:
    """Of a page that had never changed so many changes were predicted, of which three count at
    most. Where there was one, there may have been more. Two hundred are remembered."""
    weight = 3.0 / max(predicted, 3.0)
    host.quiet_predicted += weight * predicted
    if changed:
        believed = host.quiet_belief * predicted
        host.quiet_found += weight * (believed / -math.expm1(-believed) if believed > 1e-9 else 1.0)
    share = 200.0 / max(host.quiet_predicted, 200.0)
    host.quiet_predicted *= share
    host.quiet_found *= share


def multiplier_of(host: HostState, age: int) -> float:
    """The burst multiplier that holds until the next crawl."""
    if not trusts_bursts(host.signals, host.precision):
        return 1.0
    cell = host.expected_changes[0, age], host.predicted_changes[0, age]
    return single(burst_multiplier(*cell))


def told_multipliers(host: HostState) -> list[float]:
    """What is announced of all ages; that of pages that never changed with the belief in them."""
    tables = zip(host.expected_changes[0], host.predicted_changes[0], strict=True)
    trusted = trusts_bursts(host.signals, host.precision)
    never, *others = (burst_multiplier(*cell) if trusted else 1.0 for cell in tables)
    return [never * host.quiet_belief, *others]


def single(number: float) -> float:
    """As it is kept in single precision."""
    return float(np.float32(number))
