"""A page's crawl rates under all thresholds of a grid at once, by tables, for millions of pages.

f/Δ depends on three numbers only: on the *height* ln(μ/ΔΛ) of the page's highest crawl value above
the threshold, on the odds γp/α that a change is signalled, and on κ (p = 1 − e^{−κ}).  Heights are
counted in steps of the grid, 8 a decade, so one row of a table serves a page under every
threshold.  Where there are signals, f/Δ = c·(rate without signals) + rest: c(odds, κ) takes the
steep part near the highest value, and the rest is smooth enough for linear interpolation.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.kernels.special import unit_value_inverse
from shared.policy.kernels.threshold import threshold_staleness_from

Column = NDArray[np.float64]

STEPS_PER_DECADE: Final = 8
STEP: Final = math.log(10.0) / STEPS_PER_DECADE
"""Between two thresholds of the grid, in ln Λ."""

_LOW_ODDS, _ODDS_STEP, _ODDS = -7.0, 0.4, 49
"""ln(γp/α) of the table; what is outside is as at its edge."""

_LOW_KAPPA, _KAPPA_STEP, _KAPPAS = -4.6, 0.1, 84
"""ln κ of the table."""

_HEIGHTS = 80
"""Steps in the tables.  From there on f grows as Λ^−½: ten decades below the highest value."""

_LAST = _HEIGHTS - 1

_MIDDLES = 64

_STEEP = 0.02
"""Height at which c makes the rate exact, in steps."""


class RateTables(NamedTuple):
    """f/Δ per height; the last axis counts steps down to 0, the one before it parts of a step."""

    plain: Column
    """Without signals; (parts + 1, steps)."""
    factor: Column
    """c; (odds, kappas)."""
    rest: NDArray[np.float32]
    """f/Δ − c·plain; (odds, kappas, parts + 1, steps)."""


def no_tables() -> RateTables:
    """Tables of the right type that must not be looked at: for few pages none are needed."""
    return RateTables(np.zeros((2, 1)), np.zeros((1, 1)), np.zeros((1, 1, 2, 1), np.float32))


def make_tables(
    *, odds: int = _ODDS, kappas: int = _KAPPAS, parts: int = 16, fine_parts: int = 512
) -> RateTables:
    """The tables: two seconds' work, once in a process, and 20 MB.

    Args:
        odds: rows along ln(γp/α); fewer than the default only to compile.
        kappas: rows along ln κ; likewise.
        parts: of a step, for pages with signals.
        fine_parts: of a step, for pages without; a multiple of `parts`.
    """
    tables = RateTables(
        np.zeros((fine_parts + 1, _HEIGHTS)),
        np.zeros((odds, kappas)),
        np.zeros((odds, kappas, parts + 1, _HEIGHTS), np.float32),
    )
    _fill_plain(tables.plain)
    _fill_rest(tables)
    return tables


@compiled
def _fill_plain(plain: Column) -> None:
    parts = plain.shape[0] - 1
    for part in range(parts + 1):
        for step in range(_HEIGHTS):
            height = step + part / parts
            if height > 0.0:
                plain[part, _LAST - step] = 1.0 / unit_value_inverse(math.exp(-height * STEP))
    # The rate leaves 0 with infinite slope: the chord of its first part is made to have its mean.
    mean = 0.0
    for middle in range(_MIDDLES):
        height = (middle + 0.5) / (_MIDDLES * parts)
        mean += 1.0 / unit_value_inverse(math.exp(-height * STEP)) / _MIDDLES
    plain[0, _LAST] = 2.0 * mean - plain[1, _LAST]


@compiled
def _fill_rest(tables: RateTables) -> None:
    plain, factor, rest = tables
    odds_count, kappa_count, ends, heights = rest.shape
    parts = ends - 1
    fine = (plain.shape[0] - 1) // parts
    for row in range(odds_count):
        odds = math.exp(_LOW_ODDS + row * _ODDS_STEP)
        alpha = 1.0 / (1.0 + odds)
        for column in range(kappa_count):
            kappa = math.exp(_LOW_KAPPA + column * _KAPPA_STEP)
            gamma = odds * alpha / -math.expm1(-kappa)
            level = math.exp(-_STEEP * STEP)
            _, psi = threshold_staleness_from(alpha, kappa, gamma, level, 0.0)
            share = unit_value_inverse(level) / psi
            factor[row, column] = share
            start = 0.0
            for place in range(heights * parts, 0, -1):
                # Δ = 1 here; ascending thresholds, so each finds the next one's start.
                level = math.exp(-place * STEP / parts)
                start, psi = threshold_staleness_from(alpha, kappa, gamma, level, start)
                step, part = divmod(place, parts)
                if step < heights:
                    own = 1.0 / psi - share * plain[part * fine, _LAST - step]
                    rest[row, column, part, _LAST - step] = own
                if part == 0:
                    own = 1.0 / psi - share * plain[parts * fine, heights - step]
                    rest[row, column, parts, heights - step] = own


@compiled
def rates_by_tables(
    tables: RateTables,
    pages: NDArray[Any],
    lowest: float,
    rates: Column,
    reached: NDArray[np.int64],
) -> None:
    """Crawl rates, per day, of pages under the thresholds of a grid.

    On a mixture of pages they add up to the exact sum within some 1e-4; a single page with signals
    may be off by some 1e-2 where it begins to wait for one signal more.

    Args:
        tables: of `make_tables`.
        pages: records with importance, alpha and gamma (per day), and kappa; (pages,).
        lowest: ln of the lowest threshold; each other one is `STEP` above the last.
        rates: filled with the rates that are not 0; (pages, thresholds).
        reached: filled with how many thresholds, from the lowest on, have a rate; (pages,).
    """
    plain = tables.plain
    parts = plain.shape[0] - 1
    for page in range(pages.size):
        reached[page] = 0
        importance = np.float64(pages[page].importance)
        alpha, gamma = np.float64(pages[page].alpha), np.float64(pages[page].gamma)
        kappa = np.float64(pages[page].kappa)
        precision = -math.expm1(-kappa) if gamma > 0.0 and kappa > 0.0 else 0.0
        change_rate = alpha + gamma * precision
        if not (importance > 0.0 and change_rate > 0.0):
            continue
        height = (math.log(importance / change_rate) - lowest) / STEP
        if not height > 0.0:
            continue
        top = int(height)
        count = min(top + 1, rates.shape[1])
        reached[page] = count
        place = (height - top) * parts
        row = min(int(place), parts - 1)
        right = change_rate * (place - row)
        left = change_rate - right
        beyond = min(max(top - _LAST, 0), count)
        for point in range(beyond, count):
            column = point + _LAST - top
            rates[page, point] = left * plain[row, column] + right * plain[row + 1, column]
        if precision > 0.0:
            odds = math.log(min(max(gamma * precision / max(alpha, 1e-300), 1e-300), 1e300))
            signals = (odds, math.log(min(kappa, 1e300)))
            _signalled_rates(tables, signals, change_rate, height, rates[page, :count])
        if beyond > 0:
            _extend_down(rates[page], beyond, count, height, alpha * change_rate)


@compiled
def _extend_down(rates: Column, beyond: int, count: int, height: float, product: float) -> None:
    """Rates under the first `beyond` thresholds, which are below the table; `product` is αΔ."""
    if beyond < count:
        first = rates[beyond]
    else:
        first = math.sqrt(0.5 * product * math.exp((height - beyond) * STEP))
    for point in range(beyond):
        rates[point] = first * math.exp(0.5 * STEP * (beyond - point))


@compiled
def _signalled_rates(
    tables: RateTables,
    signals: tuple[float, float],
    change_rate: float,
    height: float,
    rates: Column,
) -> None:
    """Turn rates without signals into those with them, for `signals` (ln odds, ln κ)."""
    _, factor, rest = tables
    top = int(height)
    across = (signals[0] - _LOW_ODDS) / _ODDS_STEP
    across = min(max(across, 0.0), factor.shape[0] - 1.001)
    along = (signals[1] - _LOW_KAPPA) / _KAPPA_STEP
    along = min(max(along, 0.0), factor.shape[1] - 1.001)
    o, k = int(across), int(along)
    x, y = across - o, along - k
    w00, w01, w10, w11 = (1.0 - x) * (1.0 - y), (1.0 - x) * y, x * (1.0 - y), x * y
    share = w00 * factor[o, k] + w01 * factor[o, k + 1]
    share += w10 * factor[o + 1, k] + w11 * factor[o + 1, k + 1]
    sub = (height - top) * (rest.shape[2] - 1)
    row = min(int(sub), rest.shape[2] - 2)
    right = change_rate * (sub - row)
    left = change_rate - right
    for point in range(max(top - _LAST, 0), rates.size):
        column = point + _LAST - top
        first = w00 * rest[o, k, row, column] + w01 * rest[o, k + 1, row, column]
        first += w10 * rest[o + 1, k, row, column] + w11 * rest[o + 1, k + 1, row, column]
        second = w00 * rest[o, k, row + 1, column] + w01 * rest[o, k + 1, row + 1, column]
        second += w10 * rest[o + 1, k, row + 1, column] + w11 * rest[o + 1, k + 1, row + 1, column]
        rates[point] = max(share * rates[point] + left * first + right * second, 0.0)
