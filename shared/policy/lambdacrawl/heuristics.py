"""ChangeRateCrawl and UniformCrawl: the two rules of thumb that [K] compares with."""

from typing import Any

import numpy as np

from shared.policy.lambdacrawl.inputs import Floats, checked_bandwidth, checked_pages


def change_rate_crawl(change_rate: Any, bandwidth: float) -> Floats:
    """CC: ρ = RΔ/ΣΔ, crawls in proportion to changes; shape (pages,), per day.

    Raises ValueError on malformed rates or bandwidth, or if no page changes.
    """
    pages = checked_pages(np.ones(np.shape(change_rate)), change_rate)
    total = pages.change_rate.sum()
    if total == 0:
        raise ValueError("no page changes, so crawls cannot be shared by change rate")
    return np.asarray(pages.change_rate * (checked_bandwidth(bandwidth) / total))


def uniform_crawl(pages: int, bandwidth: float) -> Floats:
    """UC: ρ = R/|W| for each of `pages` pages, per day.

    Raises ValueError on a malformed bandwidth or no pages.
    """
    if pages < 1:
        raise ValueError(f"uniform_crawl needs at least one page, got {pages}")
    return np.full(pages, checked_bandwidth(bandwidth) / pages)
