"""What the same number of requests would give without Freshet, by the plan of changes. Pure.

A page that was last another one `since` seconds ago, looked at `at` seconds after the beginning,
is fresh in a copy that was fetched within these `since` seconds. Nothing is held at the beginning.
With N pages and R requests a second, T = N/R:

    in turn    each page every T seconds, in an order drawn once    min(1, since/T)
    at random  each request for a page drawn anew                   1 − exp(−since/T)
    once       each page once, in a drawn order, and never again    (min(at, T) − (at − since))⁺/T

These are exact means over the orders that may be drawn, not simulations. All three know of each
page from its first moment, read no sitemaps and keep no host's limits: what is said favours them.
"""

import math


def in_turn(since: float, interval: float) -> float:
    """How likely a copy is fresh if each page is fetched every `interval` seconds, in turn.

    Args:
        since: seconds since the page was last another one, or the beginning.
        interval: T, seconds.
    """
    return min(since / interval, 1.0)


def at_random(since: float, interval: float) -> float:
    """How likely a copy is fresh if pages are fetched at random, each every `interval` seconds on
    average. Arguments as for `in_turn`."""
    return -math.expm1(-since / interval)


def once(since: float, at: float, interval: float) -> float:
    """How likely a copy is fresh if each page is fetched once, within the first `interval` seconds.

    Args:
        since: as for `in_turn`.
        at: seconds from the beginning.
        interval: T, seconds.
    """
    return max(min(at, interval) - (at - since), 0.0) / interval
