"""What a page's directory and its signals say of its rate, beside what its host says.

Pages of a directory resemble one another more than those of a host: an abandoned manual lies beside
a live one. And pages that were ever signalled change more often without a signal, too. So the prior
of a page is not its host's Gamma(A, B) but Gamma(A, B/f), with the mean f·A/B (design: second
generation, points 1 and 2):

    f = D_directory · C_bin     bin: of the signals that the page ever had (`activity_bin`)

Both factors of a host are refitted from its crawled pages, with everything else held fixed, in
four rounds (backfitting). With the changes E_i that the records of T_i days saw without a signal,
and the mean m_i of the page's prior without the factor that is fitted, B_i = A/m_i:

    F_g = (5 + Σ E_i/((B_i + T_i) m_i)) / (5 + Σ T_i/(B_i + T_i))       over the pages of group g

which is 1 for a group of which nothing is known. C does not fall from bin to bin: weighted
isotonic regression sees to that, without which some collections get worse.
"""

import math
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.estimation.histories import Floats, Integers, sane_interval

ACTIVITY_BINS: Final = 7
"""0, 1, 2–3, 4–7, 8–15, 16–63 signals ever, and more."""

PSEUDO_PAGES: Final = 5.0
"""Pages' worth of belief that a factor is 1."""

ROUNDS: Final = 4

LEAST_FACTOR, MOST_FACTOR = 1e-3, 1e3
_LEAST_STEP, _MOST_STEP = 0.2, 5.0
"""By how much a host's mean moves in a round."""

Row = NDArray[Any]


class PageFactors(NamedTuple):
    """Factors as they were fitted."""

    directories: Floats
    """D, an element a group."""
    weights: Floats
    """Pages' worth of what was seen of each group beside its prior."""
    activity: Floats
    """C, (hosts, ACTIVITY_BINS)."""


@compiled
def activity_bin(signals: float) -> int:
    """The bin of a page that had so many signals ever."""
    if signals < 4.0:
        return 0 if signals < 1.0 else 1 if signals < 2.0 else 2
    if signals < 16.0:
        return 3 if signals < 8.0 else 4
    return 5 if signals < 64.0 else 6


@compiled
def activity_bins(signals: Row) -> NDArray[np.uint8]:
    """`activity_bin` of many pages."""
    bins = np.empty(signals.size, np.uint8)
    for page in range(signals.size):
        bins[page] = activity_bin(signals[page])
    return bins


@compiled
def seen_rings(
    pages: Integers,
    intervals: Row,
    signals: Row,
    changed: Row,
    count: Row,
    unsignalled_change_rate: Row,
    signal_evidence: Row,
    found: Floats,
    covered: Floats,
) -> None:
    """Changes E without a signal that the records of each of `pages` saw, and their days T."""
    for index in range(pages.size):
        page = pages[index]
        found[index] = covered[index] = 0.0
        for record in range(min(count[page], intervals.shape[1])):
            days = sane_interval(intervals[page, record])
            covered[index] += days
            if changed[page, record]:
                own = unsignalled_change_rate[page] * days
                exponent = own
                for source in range(signals.shape[2]):
                    exponent += signal_evidence[page, source] * signals[page, record, source]
                found[index] += own / -math.expm1(-exponent)


def fit_page_factors(
    found: Floats,
    covered: Floats,
    host: Integers,
    group: Integers,
    activity: NDArray[np.uint8],
    host_shape: Floats,
    host_rate: Floats,
    groups: int,
) -> PageFactors:
    """Fit the factors of all hosts.

    Args:
        found: E of crawled pages, an element a page, as in what follows (`seen_rings`).
        covered: T, days.
        host: row in the arrays of hosts.
        group: number of the page's directory; those of two hosts differ.
        activity: bin of the page.
        host_shape: A by host.
        host_rate: B by host, days.
        groups: how many directories there are.
    """
    hosts = host_shape.size
    directories, weights = np.ones(groups), np.zeros(groups)
    activities = np.ones(hosts * ACTIVITY_BINS)
    place = host * ACTIVITY_BINS + activity
    mean = (host_shape / host_rate).copy()
    shape = host_shape[host]
    for _ in range(ROUNDS):
        # The host first: what all of its pages have in common is no matter of a directory.
        factor = directories[group] * activities[place]
        seen, pages = _seen(found, covered, shape, mean[host] * factor, host, hosts)
        mean *= np.clip((seen + PSEUDO_PAGES) / (pages + PSEUDO_PAGES), _LEAST_STEP, _MOST_STEP)
        without = mean[host] * activities[place]
        seen, weights = _seen(found, covered, shape, without, group, groups)
        directories = _ratio(seen, weights)
        without = mean[host] * directories[group]
        seen, pages = _seen(found, covered, shape, without, place, activities.size)
        activities = _ratio(seen, pages)
        _never_falling(
            activities.reshape(hosts, ACTIVITY_BINS),
            (pages + PSEUDO_PAGES).reshape(hosts, ACTIVITY_BINS),
        )
    return PageFactors(directories, weights, activities.reshape(hosts, ACTIVITY_BINS))


def _seen(
    found: Floats, covered: Floats, shape: Floats, mean: Floats, group: Integers, groups: int
) -> tuple[Floats, Floats]:
    """What was seen of groups beside priors of some means: rates over those, and pages' worth."""
    weight = 1.0 / (shape / mean + covered)
    rates = np.bincount(group, found * weight / mean, groups)
    pages = np.bincount(group, covered * weight, groups)
    return rates.astype(np.float64), pages.astype(np.float64)


def _ratio(seen: Floats, pages: Floats) -> Floats:
    ratio = (seen + PSEUDO_PAGES) / (pages + PSEUDO_PAGES)
    return np.asarray(np.clip(ratio, LEAST_FACTOR, MOST_FACTOR))


@compiled
def _never_falling(values: Floats, weights: Floats) -> None:
    """Weighted isotonic regression of each row, in place: pool adjacent violators."""
    size = values.shape[1]
    mean, weight, length = np.empty(size), np.empty(size), np.empty(size, np.int64)
    for row in range(values.shape[0]):
        blocks = 0
        for place in range(size):
            mean[blocks] = values[row, place]
            weight[blocks] = weights[row, place]
            length[blocks] = 1
            blocks += 1
            while blocks > 1 and mean[blocks - 2] > mean[blocks - 1]:
                total = weight[blocks - 2] + weight[blocks - 1]
                mean[blocks - 2] = (
                    mean[blocks - 2] * weight[blocks - 2] + mean[blocks - 1] * weight[blocks - 1]
                ) / total
                weight[blocks - 2] = total
                length[blocks - 2] += length[blocks - 1]
                blocks -= 1
        place = 0
        for block in range(blocks):
            for _ in range(length[block]):
                values[row, place] = mean[block]
                place += 1
