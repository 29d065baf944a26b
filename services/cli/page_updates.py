"""Pages as `page-updates`, for a system that is running."""

import math
from collections.abc import Callable, Iterable, Sequence

from msgspec import UNSET

from services.cli.broker_time import go_by_broker
from services.cli.kafka import publishing
from services.cli.written_urls import naming
from shared.contracts.codec import encode
from shared.contracts.identity import (
    BadUrl,
    PageIdentity,
    identify,
    is_private_host,
    not_public,
    shard_of,
)
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.publisher import ByPlace
from shared.runtime.settings import Settings
from shared.store.import_classes import why_no_class
from shared.store.import_rows import ImportReport, PageBatch
from shared.store.import_values import can_be_taken, why_not


async def publish_rows(
    settings: Settings, rows: Iterable[PageBatch], progress: Callable[[ImportReport], None]
) -> ImportReport:
    """Publish an upsert for each row; rows that cannot be taken are counted with their reasons.

    Args:
        settings: of the process.
        rows: to be published.
        progress: told at the beginning, and after each part; its report goes on being added to.
    """
    await go_by_broker(settings)
    report = ImportReport()
    progress(report)
    async with publishing(settings) as publisher:
        for part in rows:
            shards = await publisher.partitions_of(PAGE_UPDATES)
            await publisher.queue_batches(_messages(settings, part, report, shards))
            progress(report)
    return report


def to_add(url: str, settings: Settings) -> PageIdentity:
    """The page of a URL that is to be crawled.

    Raises:
        BadUrl: Freshet does not take it.
    """
    page = identify(url)
    if not settings.allow_private_hosts and is_private_host(page.host):
        raise BadUrl(not_public(page.host))
    return page


async def publish_urgent(settings: Settings, urls: Sequence[str]) -> list[PageIdentity]:
    """Ask for pages at once.

    Raises:
        BadUrl: a URL is not one that Freshet takes; none is asked for.
    """
    pages = []
    for url in urls:
        with naming(url):
            pages.append(to_add(url, settings))
    await go_by_broker(settings)
    async with publishing(settings) as publisher:
        now = settings.clock().now()
        for page in pages:
            message = PageUpdate("upsert", page.url, updated_at=now, urgent=True)
            await publisher.send_for_host(PAGE_UPDATES, page.host, message)
    return pages


def _messages(settings: Settings, rows: PageBatch, report: ImportReport, shards: int) -> ByPlace:
    now = settings.clock().now()
    messages: ByPlace = {}
    values = rows.importance, rows.bounds, rows.crawled_at
    says_bounds = rows.max_age_days is not None
    good = can_be_taken(*values, now)
    for row, url in enumerate(rows.urls.to_pylist()):
        report.read += 1
        importance, max_age, crawled_at = (float(column[row]) for column in values)
        if not good[row]:
            report.refuse(report.read, why_not(importance, max_age, crawled_at))
            continue
        name = rows.classes[row] if rows.classes is not None else UNSET
        if isinstance(name, str) and (reason := why_no_class(name)):
            report.refuse(report.read, reason)
            continue
        try:
            page = to_add(url, settings)
        except BadUrl as error:
            report.refuse(report.read, str(error))
            continue
        message = PageUpdate(
            "upsert",
            page.url,
            importance=importance,
            max_age_days=max_age if math.isfinite(max_age) else None,
            no_max_age=says_bounds and math.isinf(max_age),
            updated_at=now,
            crawled_at=crawled_at if math.isfinite(crawled_at) else None,
            page_class=name,
        )
        place = (PAGE_UPDATES.name, shard_of(page.host, shards))
        messages.setdefault(place, []).append((page.host.encode(), encode(message)))
        report.added += 1
    return messages
