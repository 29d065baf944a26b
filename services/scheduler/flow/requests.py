"""From picks to the records of `crawl-requests`."""

from services.scheduler.picking.thresholds import thresholds_of
from services.scheduler.state.report_notes import REASONS
from services.scheduler.state.request_ids import microseconds, request_id_of
from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlRequest


def write_requests(shard: Shard, crawls: Rows, multiplier: float) -> list[tuple[bytes, bytes]]:
    """The picks as records: key and value."""
    rows, times = crawls["row"], crawls["time"]
    # All that can be is found for all of them at once: what is left is done ten thousand times a
    # second.
    name_of, number = shard.hosts.names.__getitem__, shard.number
    columns = zip(
        shard.page_ids_of(rows).tolist(),
        microseconds(times).tolist(),
        shard.urls.get_many(rows),
        map(name_of, shard.pages["host"][rows].tolist()),
        times.tolist(),
        (times + shard.rules.picking.request_timeout).tolist(),
        crawls["value"].tolist(),
        thresholds_of(shard, crawls, multiplier).tolist(),
        map(REASONS.__getitem__, crawls["tier"].tolist()),
        strict=True,
    )
    return [
        (
            host.encode(),
            encode(
                CrawlRequest(
                    request_id_of(number, page_id, requested_us),
                    page_id,
                    url,
                    host,
                    time,
                    deadline,
                    value,
                    threshold,
                    reason,
                )
            ),
        )
        for page_id, requested_us, url, host, time, deadline, value, threshold, reason in columns
    ]
