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
    rows = crawls["row"]
    hosts, timeout = shard.hosts, shard.rules.picking.request_timeout
    columns = zip(
        shard.page_ids_of(rows).tolist(),
        shard.urls.get_many(rows),
        shard.pages["host"][rows].tolist(),
        crawls["time"].tolist(),
        crawls["value"].tolist(),
        thresholds_of(shard, crawls, multiplier).tolist(),
        crawls["tier"].tolist(),
        strict=True,
    )
    return [
        (
            hosts.keys[host],
            encode(
                CrawlRequest(
                    request_id_of(shard.number, page_id, microseconds(time)),
                    page_id,
                    url,
                    hosts.names[host],
                    time,
                    time + timeout,
                    value,
                    threshold,
                    REASONS[tier],
                )
            ),
        )
        for page_id, url, host, time, value, threshold, tier in columns
    ]
