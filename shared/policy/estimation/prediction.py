"""What the model expected of a page before a crawl: how stale its copy was, and how long fresh.

With the rate α of unsignalled changes (the burst multiplier in it) and n signals of evidence E
together, t days after the crawl before, P(fresh) = e^{−s}, s = α t + E [N eq. 1]. Over the interval
the copy was expected to be fresh for

    w = ∫₀ᵗ e^{−s(u)} du

days. Of the signals only the last one's time τ is kept; the others are taken to have come at even
distances before it, with equal parts of the evidence, which is exact for a single one.
"""

import math

from shared.policy.compiled import compiled

SMALL = 1e-9
"""Exponents below this are taken to be linear."""


@compiled
def expected_fresh_days(
    rate: float, days: float, evidence: float, signals: int, last_signal_days: float
) -> float:
    """w: days of an interval for which its copy was expected to be the page's.

    Args:
        rate: α, per day, at least 0.
        days: t, length of the interval.
        evidence: E of all signals in it, at least 0.
        signals: n, how many there were.
        last_signal_days: τ, from the interval's beginning to the last of them; held inside it.
    """
    if signals <= 0:
        return days * mean_decay(rate * days)
    until = min(max(last_signal_days, 0.0), days)
    step = (evidence + rate * until) / signals
    before = evidence + rate * until
    # n equal parts, each e^{−step} times as likely to be fresh as the one before.
    parts = math.expm1(-before) / math.expm1(-step) if step > SMALL else float(signals)
    first = until / signals * mean_decay(rate * until / signals)
    after = days - until
    return first * parts + math.exp(-before) * after * mean_decay(rate * after)


@compiled
def mean_decay(exponent: float) -> float:
    """(1 − e^{−x})/x: the mean of e^{−u} for u from 0 to x."""
    if exponent > SMALL:
        return -math.expm1(-exponent) / exponent
    return 1.0 - 0.5 * exponent
