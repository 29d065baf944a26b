"""Random pages and states for the tests of the crawl value."""

import math

import numpy as np


def random_states(count, seed, *, most_terms=300):
    """(α, κ, γ, t, n) rows: γ/α from 1e-6 to 1e6, precision from 1e-12 to 1−1e-9, n to 1,000."""
    rng = np.random.default_rng(seed)
    rows = []
    while len(rows) < count:
        alpha = 10 ** rng.uniform(-6, 2)
        gamma = alpha * 10 ** rng.uniform(-6, 6)
        if rng.random() < 0.5:
            kappa = -math.log1p(-(10 ** rng.uniform(-12, 0)) * (1 - 1e-9))
        else:
            kappa = -math.log(10 ** rng.uniform(-9, -1))
        signals = int(rng.choice([0, 0, 1, 2, 3, 5, 10, 30, 100]))
        elapsed = 10 ** rng.uniform(-5, 1.5) / alpha
        if rng.random() < 0.3:
            elapsed = 10 ** rng.uniform(-3, 3) / gamma
        if rng.random() < 0.003:
            signals, elapsed = 1000, min(elapsed, 0.9 * kappa / alpha)
        elif signals + math.floor(elapsed * alpha / kappa) > most_terms:
            continue
        rows.append((alpha, kappa, gamma, elapsed, signals))
    return np.array(rows)
