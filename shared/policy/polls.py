"""What a poll of a sitemap or feed is worth: a crawl of many pages at once, under the same λ₀.

Between polls a page goes without signals, at its whole rate Δ: its crawl value (μ/Δ)h(s) reaches λ₀
at the staleness exponent s* with h(s*) = λ₀Δ/μ, h(x) = 1 − (1 + x)e^{−x}. There the rate of loss,
μ(1 − e^{−s}), equals what the page costs on average, its crawls at λ₀ each included: it is due.
So of a page with s > s*, every further day costs μ(e^{−s*} − e^{−s}) more than to crawl it would.
One signal that nobody has read adds κ to s, at whatever s in [0, s*] it finds the page, evenly:

    w = E[(e^{−s*} − e^{−(s+κ)})⁺] = e^{−s*}(1 − e^{−κ}(e^{s*} − 1)/s*)   where κ ≥ s*
                                   = e^{−s*}(κ − 1 + e^{−κ})/s*           where κ < s*

and μw is the worth of knowing it, for each day (`signal_worth`): 0 where μ/Δ ≤ λ₀, as such a page
is not crawled whatever is known of it, and less, the sooner its own crawls would come; for a page
in high demand (s* → 0) it is μ times the signal's precision.

Polls. u days after a source was read, not knowing what it says costs L(u) = Σ μw(1 − e^{−δu}) a
day, δ being the rate at which a page's signals come. A poll every τ days costs, with its price λ₀c,
(∫₀^τ L + λ₀c)/τ a day. This is least where

    V(τ) = τL(τ) − ∫₀^τ L = Σ (μw/δ) h(δτ) = λ₀c

with the h of the crawl value: to poll is to crawl many pages at once.

Learned from what polls show, where several signals of a page between two polls are seen as one. A
poll after τ days shows each page with the probability 1 − e^{−δτ}: the worths of the pages that it
shows add up to L(τ), without bias, whatever hides in between. With A = L(τ)/τ, the worth that came
a day, V(τ) = Aτ²/2 up to the terms in (δτ)³: too much by a fifth where δτ = 1, by which τ is a
tenth too short, and the cost is flat there.

λ₀ is the price of a slot in the long run. As long as copies are fresher than they will be then, the
next slots buy less, λ* < λ₀: pages are crawled that λ₀ would not, to know of their signals is worth
something, and of others more. So λ₀ here is the price of now (`slot_price`), in s* as in λ₀c.

Under another objective, with a penalty c and a jump j for a signal, the same holds of its index x:
w = E[(c(x + j) − c(x*))⁺], x even in [0, x*], V(x*) = λ₀/μ, and no page has a worth of 0.
"""

import math
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from shared.contracts.objectives import FRESHNESS
from shared.policy.model import Column, as_columns
from shared.policy.objectives import objective_signal_worth

MEMORY_DAYS: Final = 60.0
"""What polls brought so long ago counts e times less."""

HIGHEST_LEVEL: Final = 1.0 - 1e-12
"""A page for which λ₀ is a greater share of μ/Δ is as good as never crawled."""

NEWTON_STEPS: Final = 6
"""To about nine digits, and more where the level is not close to 0."""

LEAST_PRICE: Final = 0.05
"""Of λ₀; a slot is not taken to be worth less."""

UNSEEN_SIGNALS: Final = 0.5
"""Usual signals that every source is believed to have sent besides those that were seen."""


def slot_price(multiplier: float, slot_value: float) -> float:
    """λ in all of the above: what the next slots buy, as long as that is less than λ₀.

    Args:
        multiplier: λ₀.
        slot_value: down to which pages are crawled now.
    """
    return min(max(slot_value, LEAST_PRICE * multiplier), multiplier)


def signal_worth(
    importance: ArrayLike,
    alpha: ArrayLike,
    kappa: ArrayLike,
    gamma: ArrayLike,
    price: float,
    objective: int = FRESHNESS,
) -> Column:
    """μw of each page: what it saves a day to know of one signal. One row a page.

    Args:
        importance: μ.
        alpha: changes a day that no signal announces.
        kappa: evidence of one signal.
        gamma: signals a day.
        price: of a slot, above 0 (`slot_price`).
        objective: what the pages are crawled for (`objectives`).
    """
    if objective != FRESHNESS:
        return objective_signal_worth(objective, importance, alpha, kappa, gamma, price)
    weights, rates, evidence, signals = as_columns(importance, alpha, kappa, gamma)
    least = price * (rates - signals * np.expm1(-evidence))
    is_crawled = (least > 0.0) & (least < HIGHEST_LEVEL * weights)
    exponent = _exponent(np.divide(least, weights, out=np.full_like(least, 0.5), where=is_crawled))
    precise = 1.0 - np.exp(-evidence) * np.expm1(exponent) / exponent
    vague = (np.minimum(evidence, exponent) + np.expm1(-evidence)) / exponent
    share = np.where(evidence >= exponent, precise, vague)
    return np.where(is_crawled, weights * np.exp(-exponent) * np.clip(share, 0.0, 1.0), 0.0)


def _exponent(level: Column) -> Column:
    """s with h(s) = level: Newton's method on s − ln(1 + s) = −ln(1 − level), from above."""
    wanted = -np.log1p(-level)
    exponent = wanted + np.sqrt(2.0 * wanted)
    for _ in range(NEWTON_STEPS):
        exponent -= (exponent - np.log1p(exponent) - wanted) * (1.0 + exponent) / exponent
    return exponent


def kept_after(days: float) -> float:
    """The share at which what was brought so many days ago still counts."""
    return math.exp(-days / MEMORY_DAYS)


class PollRecord(NamedTuple):
    """What the polls of a source have brought, the older ones less and less."""

    worth: float = 0.0
    """Of the pages that were shown (`signal_worth`), summed."""
    signals: float = 0.0
    """How many they were."""
    days: float = 0.0
    """In which they came."""

    def after(self, days: float, signals: int, worth: float) -> "PollRecord":
        """With a poll that came so many days after the one before."""
        kept = kept_after(days)
        return PollRecord(
            self.worth * kept + worth, self.signals * kept + signals, self.days * kept + days
        )

    def worth_a_day(self, price: float) -> float:
        """A, with a little more than was seen: a source is not forgotten for having been quiet.

        Args:
            price: what a poll costs, in the unit of worth; a signal of a source that has brought
                nothing of worth yet counts as so much, whatever the unit of importance is.

        Raises:
            ZeroDivisionError: nothing was watched yet.
        """
        usual = self.worth / self.signals if self.worth > 0.0 else price
        return (self.worth + UNSEEN_SIGNALS * usual) / self.days


def poll_interval(worth_a_day: float, price: float) -> float:
    """Days after which V(τ) = Aτ²/2 reaches the price, λ₀ times the cost in crawls."""
    return math.sqrt(2.0 * price / worth_a_day)


def staleness_saved(record: PollRecord, interval_days: float, rarest_days: float) -> float:
    """How many pages of importance one are fresh for polls every so many days instead of rarely.

    L(u) = Au at u days after a poll, so that polls every τ days leave Aτ/2 on average. By what was
    seen alone: a source that brought nothing saves nothing. Too much where pages are announced
    often between two of the rare polls, as L grows less and less.

    Args:
        record: what the polls brought; of some days.
        interval_days: between two polls.
        rarest_days: between two polls that are compared with.

    Raises:
        ZeroDivisionError: nothing was watched yet.
    """
    return record.worth / record.days * max(rarest_days - interval_days, 0.0) / 2.0
