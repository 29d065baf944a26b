"""How the times and rates of a `RECORD` are packed.

- When a page was updated: in steps of 15 microseconds, from 1938 to 2074. Of updates of a page that
  are nearer to each other, the one that comes later counts as later.
- When it changed: in steps of 160 seconds, as long as that is at most 120 days before its last
  crawl; burst multipliers do not tell longer times apart.
- Its burst multiplier: as a power of 2 in steps of 1/2048, 0.03 %; 1 is exact. The rate that the
  page has of its own, before the multiplier, is `alpha` of its `PAGE` over that.
"""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state.rows import NEVER, Rows
from shared.policy.compiled import compiled
from shared.units import SECONDS_PER_DAY

UPDATE_STEPS: Final = 65_536.0
"""In a second."""

_FIRST_SECOND: Final = -1e9
_SECONDS: Final = 4_294_967_295.0
_LOW_BITS: Final = 32
_LOW_MASK: Final = 0xFFFF_FFFF

CHANGE_SECONDS: Final = 160.0
"""Of a step in which changes are told apart."""

LONG_AGO_DAYS: Final = 120.0

_NO_CHANGE: Final = 0
_LONG_AGO: Final = 1
_FIRST_STAMP: Final = 2
_STAMPS: Final = 0x10000 - _FIRST_STAMP
"""Steps before stamps come again: 121 days."""

_MULTIPLIER_STEPS: Final = 2048.0
"""In a factor of 2."""

_LARGEST_POWER: Final = 16_383
"""Multipliers are clipped to 1/256 and 256: those of bursts are from 0.1 to 10, and of pages that
never changed, with what is believed of them, from 0.02."""

_SMALLEST: Final = 1e-9
"""So that every multiplier has a logarithm."""


@compiled
def update_steps(time: float) -> int:
    """A time of an update as it is kept; 0: never."""
    if not time > NEVER:
        return 0
    return int(min(max(time - _FIRST_SECOND, 0.0), _SECONDS) * UPDATE_STEPS) + 1


@compiled
def updated_steps_of(record: Any) -> int:
    """When a page was updated last, as `update_steps` has it."""
    steps: int = (np.int64(record.updated_high) << _LOW_BITS) | np.int64(record.updated_low)  # type: ignore[assignment]
    return steps


@compiled
def updated_at(record: Any) -> float:
    """When a page was updated last, to 15 microseconds."""
    steps = updated_steps_of(record)
    return (steps - 1) / UPDATE_STEPS + _FIRST_SECOND if steps > 0 else NEVER


@compiled
def take_update(record: Any, time: float) -> bool:
    """A page is updated at a time, unless it was updated later: then False."""
    steps = update_steps(time)
    if updated_steps_of(record) > steps:
        return False
    _note_update(record, steps)
    return True


@compiled
def _note_update(record: Any, steps: int) -> None:
    record.updated_low = steps & _LOW_MASK
    record.updated_high = steps >> _LOW_BITS


@compiled
def _stamp(time: float) -> int:
    return math.floor(time / CHANGE_SECONDS) % _STAMPS


@compiled
def is_unchanged(record: Any) -> bool:
    """Whether no change of a page was ever seen."""
    return bool(record.change == _NO_CHANGE)


@compiled
def days_since_change(record: Any, last_crawled_at: float) -> float:
    """Days from a page's last change to its last crawl; infinite: none was seen."""
    if is_unchanged(record):
        return math.inf
    change = np.int64(record.change)
    if change == _LONG_AGO:
        return LONG_AGO_DAYS
    steps = (_stamp(last_crawled_at) - (change - _FIRST_STAMP)) % _STAMPS
    return steps * CHANGE_SECONDS / SECONDS_PER_DAY


@compiled
def set_crawled(page: Any, record: Any, time: float, is_changed: bool) -> float:
    """Note a crawl that is the page's last one from now on.

    Returns:
        days from its last change to this crawl.
    """
    days = 0.0
    if is_changed:
        record.change = _FIRST_STAMP + _stamp(time)
    else:
        days = days_since_change(record, page.last_crawled_at)
        if days < math.inf:
            days += (time - page.last_crawled_at) / SECONDS_PER_DAY
            if days >= LONG_AGO_DAYS:
                record.change = _LONG_AGO
    page.last_crawled_at = time
    return days


@compiled
def multiplier_of(record: Any) -> float:
    """The burst multiplier that holds since the page's last crawl."""
    power = np.int64(record.burst) >> 1
    return 2.0 ** (power / _MULTIPLIER_STEPS)


@compiled
def has_own_rate(record: Any) -> bool:
    """Whether the page has a rate of its own, and not its host's."""
    return bool(record.burst & 1)


@compiled
def set_multiplier(page: Any, record: Any, multiplier: float) -> bool:
    """Change the burst multiplier, and with it a rate of the page's own; whether it was another."""
    if multiplier == 1.0 and np.int64(record.burst) >> 1 == 0:
        return False
    power = round(math.log2(max(multiplier, _SMALLEST)) * _MULTIPLIER_STEPS)
    power = max(-_LARGEST_POWER, min(power, _LARGEST_POWER))
    before = np.int64(record.burst)
    if before >> 1 == power:
        return False
    if before & 1:
        own = np.float64(page.alpha) / multiplier_of(record)
        page.alpha = own * 2.0 ** (power / _MULTIPLIER_STEPS)
    record.burst = 2 * power + (before & 1)
    return True


@compiled
def set_own_rate(page: Any, record: Any, alpha: float) -> None:
    """The page has a rate of its own, per day and before its multiplier; NaN: its host's holds,
    which the caller sets."""
    if np.isnan(alpha):
        record.burst = record.burst & ~1
    else:
        record.burst = record.burst | 1
        page.alpha = alpha * multiplier_of(record)


@compiled
def load_update(record: Any, time: float) -> None:
    """Note when a page was updated last."""
    _note_update(record, update_steps(time))


@compiled
def load_updates(records: Rows, times: NDArray[np.float64]) -> None:
    """The same of many pages."""
    for row in range(records.size):
        load_update(records[row], times[row])


@compiled
def load_change(record: Any, changed_at: float, last_crawled_at: float) -> None:
    """Note when a page changed last; NEVER: no change was seen."""
    record.change = _NO_CHANGE
    if changed_at > NEVER and last_crawled_at > NEVER:
        at = min(changed_at, last_crawled_at)
        is_long_ago = last_crawled_at - at >= LONG_AGO_DAYS * SECONDS_PER_DAY
        record.change = _LONG_AGO if is_long_ago else _FIRST_STAMP + _stamp(at)


def load_rates(
    pages: Rows,
    records: Rows,
    own: NDArray[np.float64],
    multipliers: NDArray[np.float32],
    of_host: NDArray[np.floating[Any]],
) -> None:
    """Set the rates of pages: their own (NaN: none) times their multipliers, or their hosts'."""
    factors = np.maximum(multipliers.astype(np.float64), _SMALLEST)
    powers = np.rint(np.log2(factors) * _MULTIPLIER_STEPS)
    powers = np.clip(powers, -_LARGEST_POWER, _LARGEST_POWER).astype(np.int16)
    has_own = ~np.isnan(own)
    records["burst"] = 2 * powers + has_own
    pages["alpha"] = np.where(has_own, own * 2.0 ** (powers / _MULTIPLIER_STEPS), of_host)
