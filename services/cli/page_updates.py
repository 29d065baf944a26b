"""Pages as `page-updates`, for a system that is running."""

import math
from collections.abc import Callable, Iterable

from services.cli.kafka import require_broker
from services.cli.page_files import PageRows
from shared.contracts.codec import encode
from shared.contracts.identity import BadUrl, PageIdentity, identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.publisher import ByPlace, Publisher
from shared.runtime.settings import Settings
from shared.store.imports import ImportReport


async def publish_rows(
    settings: Settings, rows: Iterable[PageRows], progress: Callable[[ImportReport], None]
) -> ImportReport:
    """Publish an upsert for each row; rows that cannot be taken are counted with their reasons."""
    require_broker(settings)
    report = ImportReport()
    publisher = Publisher(settings)
    await publisher.start()
    try:
        for part in rows:
            await publisher.queue_batches(_messages(settings, part, report))
            progress(report)
        await publisher.flush()
    finally:
        await publisher.stop()
    return report


async def publish_removal(settings: Settings, url: str) -> PageIdentity:
    """Publish that a page is not to be crawled any more.

    Raises:
        BadUrl: the URL is not one that Freshet takes.
    """
    page = identify(url)
    require_broker(settings)
    publisher = Publisher(settings)
    await publisher.start()
    try:
        now = settings.clock().now()
        message = PageUpdate("remove", page.url, updated_at=now)
        await (await publisher.send_for_host(PAGE_UPDATES, page.host, message))
    finally:
        await publisher.stop()
    return page


def _messages(settings: Settings, rows: PageRows, report: ImportReport) -> ByPlace:
    now = settings.clock().now()
    messages: ByPlace = {}
    for row, url in enumerate(rows.urls):
        report.read += 1
        importance, max_age = float(rows.importance[row]), float(rows.max_age_days[row])
        crawled_at = float(rows.crawled_at[row])
        if not 0 <= importance <= 1e12 or not max_age > 0:
            report.refuse(
                report.read, f"importance {importance} must be ≥ 0, max_age_days {max_age} > 0"
            )
            continue
        try:
            page = identify(url)
        except BadUrl as error:
            report.refuse(report.read, str(error))
            continue
        message = PageUpdate(
            "upsert",
            page.url,
            importance=importance,
            max_age_days=max_age if math.isfinite(max_age) else None,
            updated_at=now,
            crawled_at=crawled_at if math.isfinite(crawled_at) else None,
        )
        place = (PAGE_UPDATES.name, shard_of(page.host, settings.partitions))
        messages.setdefault(place, []).append((page.host.encode(), encode(message)))
        report.added += 1
    return messages
