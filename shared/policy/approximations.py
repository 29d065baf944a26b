"""The simpler values of [N], as policies to compare with: none of them is the production kernel.

Columns in, columns out, as in :mod:`shared.policy.value`; ``signals`` are counts.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from shared.policy.compiled import compiled
from shared.policy.kernels.crawl_value import fully_signalled, value_and_psi
from shared.policy.kernels.noisy import saturated_terms, term
from shared.policy.model import Column, PageParameters, as_columns
from shared.policy.value import crawl_value

TRUSTED_PRECISION, TRUSTED_RECALL = 0.7, 0.6
"""[N] section 6.7: above both, GREEDY-CIS+ trusts a page's signals."""


def greedy_value(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
) -> Column:
    """GREEDY: (μ/Δ)h(Δt), which does not look at signals [N section 5.1; B]."""
    pages = PageParameters.from_columns(importance, alpha, kappa, gamma)
    return crawl_value(pages.importance, pages.change_rate, 0.0, 0.0, elapsed_days, 0.0)


def greedy_cis_value(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
) -> Column:
    """GREEDY-CIS: believes every signal [N].

    The value of the page as if no signal were false (ν = 0, so γ becomes λΔ): μ/Δ after a signal,
    the first term of the sum before.
    """
    pages = PageParameters.from_columns(importance, alpha, kappa, gamma)
    true_signals = pages.gamma * pages.precision
    return crawl_value(
        pages.importance, pages.alpha, np.inf, true_signals, elapsed_days, _believed(pages, signals)
    )


def greedy_cis_plus_value(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
) -> Column:
    """GREEDY-CIS+: GREEDY-CIS where precision > 0.7 and recall > 0.6, GREEDY elsewhere [N]."""
    pages = PageParameters.from_columns(importance, alpha, kappa, gamma)
    columns = (pages.importance, pages.alpha, pages.kappa, pages.gamma)
    trusted = (pages.precision > TRUSTED_PRECISION) & (pages.recall > TRUSTED_RECALL)
    return np.where(
        trusted,
        greedy_cis_value(*columns, elapsed_days, signals),
        greedy_value(*columns, elapsed_days),
    )


def g_ncis_approximation(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    elapsed_days: ArrayLike,
    signals: ArrayLike,
    *,
    terms: int,
) -> Column:
    """G-NCIS-APPROX-j: the first j = ``terms`` terms of both sums of [N, lemma 4].

    Evaluated without cancellation.  With few terms and small β it is far below the exact value; its
    limit with one term is μ/(Δ+ν).  Raises ``ValueError`` for fewer than 1 term.
    """
    if terms < 1:
        raise ValueError(f"an approximation with {terms} terms: give 1 or more")
    columns = as_columns(importance, alpha, kappa, gamma, elapsed_days, signals)
    out = np.empty(len(columns[0]))
    _fill_approximation(out, float(terms), *columns)
    return out


def _believed(pages: PageParameters, signals: ArrayLike) -> Column:
    """The signals of pages that send true ones at all; those of the others mean nothing."""
    counts = as_columns(signals, pages.gamma)[0]
    return np.where(pages.precision > 0, counts, 0.0)


@compiled
def leading_terms(
    alpha: float, kappa: float, gamma: float, elapsed: float, signals: float, terms: float
) -> float:
    """V/μ of the first ``terms`` terms; exact where there are no more."""
    if not gamma > 0.0 or kappa == math.inf:
        return value_and_psi(alpha, kappa, gamma, elapsed, signals)[0]
    if not alpha > 0.0:
        if terms >= signals:
            return fully_signalled(kappa, gamma, signals, 0.0)[0]
        return saturated_terms(kappa * signals, kappa, 0.0, terms) / gamma
    beta = kappa / alpha
    value = 0.0
    i = 0.0
    while i < terms:
        x = elapsed + (signals - i) * beta
        if not x > 0.0:
            break
        value += math.exp(-i * kappa) * term(alpha, gamma, i, x)[0]
        i += 1.0
    return value


@compiled
def _fill_approximation(
    out: Column,
    terms: float,
    importance: Column,
    alpha: Column,
    kappa: Column,
    gamma: Column,
    elapsed: Column,
    signals: Column,
) -> None:
    for page in range(out.size):
        out[page] = 0.0
        if importance[page] > 0.0:
            out[page] = importance[page] * leading_terms(
                alpha[page], kappa[page], gamma[page], elapsed[page], signals[page], terms
            )
