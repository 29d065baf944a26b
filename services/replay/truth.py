"""Which signals of a recorded trace were true: signals matched to the changes before them."""

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled

LONGEST_DELAY_DAYS = 1.01
"""A sitemap tells at the next midnight, so a true signal comes within a day of its change."""


@compiled
def matched_counts(
    days: NDArray[np.float64], pages: NDArray[np.int64], kinds: NDArray[np.int8], count: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """(signals, true signals, changes without a signal) of each page, from merged events.

    Each signal takes the oldest change of its page within `LONGEST_DELAY_DAYS` before it that no
    other signal took; a queue of open changes per page is threaded through `following`.
    """
    signals = np.zeros(count)
    true_signals = np.zeros(count)
    unsignalled = np.zeros(count)
    first = np.full(count, -1)
    last = np.full(count, -1)
    following = np.full(days.size, -1)
    for event in range(days.size):
        page = pages[event]
        if kinds[event] == 0:
            unsignalled[page] += 1.0
            if first[page] < 0:
                first[page] = event
            else:
                following[last[page]] = event
            last[page] = event
            continue
        signals[page] += 1.0
        while first[page] >= 0 and days[first[page]] < days[event] - LONGEST_DELAY_DAYS:
            first[page] = following[first[page]]
        if first[page] >= 0:
            first[page] = following[first[page]]
            true_signals[page] += 1.0
            unsignalled[page] -= 1.0
    return signals, true_signals, unsignalled
