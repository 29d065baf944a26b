"""Pages that a command is about: single ones, those of a host, or those under a URL."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from services.cli.broker_time import go_by_broker
from services.cli.databases import url_of_host
from services.cli.kafka import publishing
from services.cli.written_urls import page_of
from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, host_name, identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.publisher import ByPlace
from shared.runtime.settings import Settings
from shared.store.page_listing import count_under, urls_under

UpdateOf = Callable[[str, float], PageUpdate]
"""URL and time, Unix seconds, to what is said of the page."""


@dataclass(frozen=True, slots=True)
class Selected:
    """Which pages are meant."""

    host: str
    prefix: str = ""
    """How their URLs begin; empty: all of the host."""
    urls: tuple[str, ...] = ()
    """Canonical; none: whatever the database has."""

    def count(self, settings: Settings) -> int:
        """How many there are."""
        if self.urls:
            return len(self.urls)
        return count_under(url_of_host(settings, self.host), self.host, self.prefix)

    def parts(self, settings: Settings) -> Iterator[Sequence[str]]:
        """Their URLs, some thousand at a time."""
        if self.urls:
            yield self.urls
            return
        yield from urls_under(url_of_host(settings, self.host), self.host, self.prefix)


def selected(urls: Iterable[str], host: str | None, prefix: str | None) -> Selected:
    """The pages that one of the arguments names.

    Raises:
        UsageError: none of them names any, or several do.
        BadUrl, BadHost: what is named is not one that Freshet takes.
    """
    canonical = tuple(page_of(url).url for url in urls)
    if sum((bool(canonical), host is not None, prefix is not None)) != 1:
        raise click.UsageError("give URLs, or --host, or --prefix")
    if host is not None:
        return Selected(host_name(host))
    if prefix is not None:
        page = page_of(prefix)
        return Selected(page.host, page.url)
    return Selected("", urls=canonical)


def publish(settings: Settings, pages: Selected, update_of: UpdateOf) -> int:
    """Say the same of all pages that are selected; how many they were."""
    return asyncio.run(_publish(settings, pages, update_of))


async def _publish(settings: Settings, pages: Selected, update_of: UpdateOf) -> int:
    await go_by_broker(settings)
    published, now = 0, settings.clock().now()
    async with publishing(settings) as publisher:
        parts = pages.parts(settings)
        while urls := await asyncio.to_thread(next, parts, ()):
            shards = await publisher.partitions_of(PAGE_UPDATES)
            messages = _messages(map(identify, urls), update_of, now, shards)
            await publisher.queue_batches(messages)
            published += len(urls)
    return published


def _messages(
    pages: Iterable[PageIdentity], update_of: UpdateOf, now: float, shards: int
) -> ByPlace:
    messages: ByPlace = {}
    for page in pages:
        place = (PAGE_UPDATES.name, shard_of(page.host, shards))
        message = page.host.encode(), encode(update_of(page.url, now))
        messages.setdefault(place, []).append(message)
    return messages
