"""Which digest the next one is compared with, and what counts as a change."""

import pytest

from shared.rules.page_events import (
    CHANGED,
    COMPARE,
    NO_DIGEST,
    UNCHANGED,
    digest_after_crawl,
    is_change,
    is_observation,
)


def changes(*crawls):
    """How many changes are counted of crawls: kinds and digests."""
    known, found, last = NO_DIGEST, 0, 1.0
    for kind, digest in crawls:
        found += is_observation(kind, last, known) and is_change(kind, digest, known)
        known, last = digest_after_crawl(kind, digest, known), last + 1.0
    return found


@pytest.mark.parametrize(
    ("crawls", "found"),
    [
        ([(COMPARE, 1), (COMPARE, 1), (COMPARE, 2)], 1),
        ([(COMPARE, 1), (UNCHANGED, NO_DIGEST), (COMPARE, 1)], 0),
        ([(COMPARE, 1), (CHANGED, 2), (COMPARE, 2)], 1),
        # One crawler says digests, another one what it found: the change is one all the same.
        ([(COMPARE, 1), (CHANGED, NO_DIGEST), (COMPARE, 2), (COMPARE, 3)], 2),
        ([(COMPARE, 1), (CHANGED, NO_DIGEST), (COMPARE, 2), (COMPARE, 2)], 1),
    ],
)
def test_a_change_counts_once_whoever_tells_of_it(crawls, found):
    assert changes(*crawls) == found
