"""The optimal freshness by a general method: outer linearisation and linear programs (HiGHS).

Freshness is concave in a page's crawl rate, so tangents bound it from above; each linear program
gives an upper bound, and its rates a lower one.  It knows nothing of multipliers or thresholds:
freshness as a function of rate comes from a table of (ψ, w) along the state.
"""

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import linprog

from shared.policy.model import Column, PageParameters
from shared.policy.value import intervals


def freshness_of_rate(params: PageParameters, rates: Column) -> tuple[Column, Column]:
    """(w/ψ, its slope) of each page at its crawl rate 1/ψ > 0, by bisection on the state."""
    low = np.full(len(rates), 1e-12)
    high = np.full(len(rates), 1e12)
    columns = (params.alpha, params.kappa, params.gamma)
    for _ in range(110):
        middle = np.sqrt(low * high)
        rarer = intervals(*columns, middle, 0)[0] * rates > 1
        high = np.where(rarer, middle, high)
        low = np.where(rarer, low, middle)
    psi, fresh = intervals(*columns, low, 0)
    return fresh / psi, fresh - psi * np.exp(-params.alpha * low)


def best_objective(
    params: PageParameters,
    hosts: NDArray[np.int32],
    caps: Column,
    budget: float,
    *,
    rounds: int = 25,
    gap: float = 5e-7,
) -> tuple[float, float]:
    """(lower, upper) bound of max Σμ·freshness, within ``gap`` relative if it converges."""
    count = len(params)
    rates = np.full(count, budget / count)
    cuts = [rates * factor for factor in np.geomspace(1e-4, 1e3, 36)]
    limited = np.flatnonzero(np.isfinite(caps))
    rows = sp.csr_array((np.ones(count), (hosts, np.arange(count))), shape=(len(caps), count))
    limits = sp.vstack([np.ones((1, count)), rows[limited]])
    limits = sp.hstack([limits, sp.csr_array(limits.shape)])
    bounds = np.concatenate([[budget], caps[limited]])
    blocks, right = [limits], [bounds]
    lower = 0.0
    for _ in range(rounds):
        for cut in cuts:
            value, slope = freshness_of_rate(params, cut)
            blocks.append(sp.hstack([sp.diags_array(-slope), sp.eye_array(count)]))
            right.append(value - slope * cut)
        cost = -np.concatenate([np.zeros(count), params.importance])
        solution = linprog(
            cost, sp.vstack(blocks).tocsr(), np.concatenate(right), bounds=(0, None), method="highs"
        )
        upper = -solution.fun
        rates = np.maximum(solution.x[:count], 1e-9)
        lower = max(lower, float(params.importance @ freshness_of_rate(params, rates)[0]))
        if upper - lower <= gap * upper:
            break
        cuts = [rates]
    return lower, upper
