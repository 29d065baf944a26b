"""Belief in quiet pages: what share of the changes that are predicted of them is found.

Of pages that have shown no change yet more changes are predicted than are found: what is crawled is
what is overrated, hosts of a page or two know little of their own, and the burst multiplier for
*never* (`bursts`) says nothing of pages that were never looked at again. So each host counts, over
its crawls with no signal of pages of which no change was ever seen, after t days at the effective
rate M α̂,

    x₀ = M α̂ t,  x = Q x₀:   E += w z x/(1 − e^{−x}),   X += w x₀

(an EM step for a common factor, as in `bursts`, with its weights w and its memory), and is
believed, of such pages, by

    Q = clip((5 Q_s + E)/(5 + X), 0.2, 1)

with Q_s the same, unclipped, of the sums of its site, behind which stands the same of everything. Q
is refitted with the priors. What is told of such pages, crawled or not, is Q times their rate;
nothing of it goes into the fits, whose α̂ stays what X is counted by. All this only where signals of
the site prove true, as in `bursts`: elsewhere Q is exactly 1, as it was found to do harm there. E
and X are sums over crawls: those of hosts add up, whatever shards they are in.
"""

from typing import Any, Final, NamedTuple, Self

import numpy as np

from shared.policy.compiled import compiled
from shared.policy.estimation.bursts import (
    LEAST_PRECISION,
    LEAST_SIGNALS,
    MOST_REMEMBERED,
    counted,
)
from shared.policy.estimation.histories import Floats, Integers, sane_interval

PSEUDO_CHANGES: Final = 5.0
"""Predicted changes' worth of belief in what the parent says."""

LEAST_BELIEF, MOST_BELIEF = 0.2, 1.0

NEVER_CHANGED: Final = 0
"""The bin of age (`bursts.age_bin`) of pages of which no change was seen."""


class QuietPages(NamedTuple):
    """What crawls of quiet pages came to, a row a host."""

    found: Floats
    """E: changes found in them; (hosts,)."""
    predicted: Floats
    """X: what α̂ and the burst multiplier had predicted; (hosts,)."""
    belief: Floats
    """Q, as of the last refit; (hosts,)."""

    @classmethod
    def initial(cls, hosts: int) -> Self:
        """Nothing was seen yet."""
        return cls(np.zeros(hosts), np.zeros(hosts), np.ones(hosts))

    def remembered(self) -> Self:
        """Without what no host remembers any more: what stands from when all was, with intervals
        that counted for any number of changes, would speak for whole sites."""
        share = MOST_REMEMBERED / np.maximum(self.predicted, MOST_REMEMBERED)
        return self._replace(found=self.found * share, predicted=self.predicted * share)


@compiled
def count_quiet(host: Any, effective_change_rate: float, days: float, changed: bool) -> None:
    """Take a crawl without signals, of a page that never changed before it, into its host's sums.

    Args:
        host: a record with `quiet_found`, `quiet_predicted` and `quiet_belief`.
        effective_change_rate: M α̂ of the page, per day.
        days: since the crawl before.
        changed: whether it found a change.
    """
    host.quiet_found, host.quiet_predicted = counted(
        host.quiet_found,
        host.quiet_predicted,
        effective_change_rate * sane_interval(days),
        host.quiet_belief,
        changed,
    )


def believed_mean(shape: Floats, rate: Floats, belief: Floats) -> Floats:
    """Mean α of pages that no crawl has looked at again, A/B · Q, per day; (hosts,)."""
    return np.asarray(shape / rate * belief)


def believed_multipliers(multipliers: Floats, belief: Floats) -> Floats:
    """Burst multipliers, (hosts, AGE_BINS), that for *never* times Q."""
    believed = multipliers.copy()
    believed[:, NEVER_CHANGED] *= belief
    return believed


def quiet_beliefs(
    found: Floats,
    predicted: Floats,
    signals: Floats,
    precision: Floats,
    site_of_host: Integers,
) -> Floats:
    """Q of each host.

    Args:
        found: E of hosts, (hosts,).
        predicted: X.
        signals: all signals ever, (hosts, K).
        precision: how often those of each source are true, (hosts, K).
        site_of_host: numbers from 0, (hosts,).
    """

    def of_sites(column: Floats) -> Floats:
        return np.bincount(site_of_host, column).astype(np.float64)

    def pooled(parent: Any, seen: Floats, expected: Floats) -> Floats:
        return np.asarray((PSEUDO_CHANGES * parent + seen) / (PSEUDO_CHANGES + expected))

    everything = pooled(1.0, found.sum(), predicted.sum())
    site = pooled(everything, of_sites(found), of_sites(predicted))[site_of_host]
    belief = np.clip(pooled(site, found, predicted), LEAST_BELIEF, MOST_BELIEF)
    true = of_sites(np.where(precision >= LEAST_PRECISION, signals, 0.0).sum(axis=1))
    return np.where((true >= LEAST_SIGNALS)[site_of_host], belief, 1.0)
