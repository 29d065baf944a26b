"""From picks to the records of `crawl-requests`."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking.asked import ASKED, ask_for
from services.scheduler.state.report_notes import REASONS
from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlRequest
from shared.contracts.request_ids import request_id_of


class Crawls(NamedTuple):
    """What is asked for of a shard."""

    asked: Rows
    """Of `ASKED`."""
    by_tier: NDArray[np.int64]
    """How many are of each tier."""
    least: float
    """The least value of those by value; infinite: none is."""


def crawls_of(shard: Shard, picks: Rows, multiplier: float) -> Crawls:
    """What is asked for with slots, by their picks.

    Args:
        shard: of the pages.
        picks: `filling.PICK`, those without a page among them.
        multiplier: λ₀.
    """
    asked, by_tier = np.zeros(picks.size, ASKED), np.zeros(len(REASONS), np.int64)
    timeout, hosts = shard.rules.picking.request_timeout, shard.hosts.rows
    count, least = ask_for(picks, shard.pages, hosts, multiplier, timeout, asked, by_tier)
    return Crawls(asked[:count], by_tier, least)


def write_requests(shard: Shard, asked: Rows) -> list[tuple[bytes, bytes]]:
    """What is asked for as records: key and value."""
    rows = asked["row"]
    # All that can be is found for all of them at once: what is left is done ten thousand times a
    # second.
    name_of, number = shard.hosts.names.__getitem__, shard.number
    page_ids, urls = shard.page_ids_of(rows).tolist(), shard.urls.get_many(rows)
    written = []
    for page_id, url, one in zip(page_ids, urls, asked.tolist(), strict=True):
        _, host_number, requested_us, time, deadline, value, threshold, tier = one
        host = name_of(host_number)
        request = CrawlRequest(
            request_id_of(number, page_id, requested_us),
            page_id,
            url,
            host,
            time,
            deadline,
            value,
            threshold,
            REASONS[tier],
        )
        written.append((host.encode(), encode(request)))
    return written
