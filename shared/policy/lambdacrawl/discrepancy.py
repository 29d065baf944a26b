"""LDS: a deterministic order of crawls with given rates, as the policy of that name in [A] makes.

Crawls happen one at a time, at t = k/R. To turn rates ρ_i into an order, the j-th crawl of page i
is given the window of steps ((j − 1)/π_i, j/π_i], π_i = ρ_i/R, and each step crawls, among pages
whose window is open, the one whose window closes first. So every page's number of crawls stays
within one of π_i k after any k steps: low discrepancy (Tijdeman 1980; Angel, Holroyd, Martin &
Propp 2009, whose algorithm this is; that [A] algorithm 3 is the same is our reading of what [N] and
[K] say of it).
"""

import heapq
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.policy.compiled import compiled
from shared.policy.lambdacrawl.inputs import Floats


def low_discrepancy_schedule(rates: Any, crawls: int) -> NDArray[np.int64]:
    """The pages of the first `crawls` crawls, in order; shape (crawls,).

    `rates` (pages,) in any unit; pages of rate 0 are never crawled. Costs O(log pages) a crawl.

    Raises ValueError if a rate is negative or not finite, or none is positive.
    """
    column = np.ascontiguousarray(rates, dtype=np.float64)
    good = np.isfinite(column) & (column >= 0)
    if column.ndim != 1 or not good.all():
        fault = column[~good][:1] if column.ndim == 1 else column.shape
        raise ValueError(f"rates must be a column of finite numbers ≥ 0; got {fault}")
    total = column.sum()
    if not 0 < total < np.inf:
        raise ValueError(f"rates sum to {total}: at least one page must have a positive rate")
    if crawls < 0:
        raise ValueError(f"crawls is {crawls}, must be ≥ 0")
    return _schedule(column / total, crawls)


@compiled
def _schedule(shares: Floats, crawls: int) -> NDArray[np.int64]:
    done = np.zeros(shares.size, dtype=np.int64)
    order = np.empty(crawls, dtype=np.int64)
    # Both heaps hold (step, page): the step at which a window opens, or closes.
    waiting = [(0.0, np.int64(0)) for _ in range(0)]
    ready = [(1.0 / shares[page], np.int64(page)) for page in range(shares.size) if shares[page]]
    heapq.heapify(ready)
    for step in range(1, crawls + 1):
        # With nothing open, which only rounding can cause, the next to open comes early.
        while waiting and (waiting[0][0] < step or not ready):
            page = heapq.heappop(waiting)[1]
            heapq.heappush(ready, ((done[page] + 1) / shares[page], page))
        page = heapq.heappop(ready)[1]
        order[step - 1] = page
        done[page] += 1
        heapq.heappush(waiting, (done[page] / shares[page], page))
    return order
