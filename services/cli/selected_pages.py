"""Pages that a command is about: single ones, those of a host, or those under a URL."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import click

from services.cli.broker_time import go_by_broker
from services.cli.databases import url_of_host
from services.cli.interrupted import telling_how_far
from services.cli.kafka import publishing
from services.cli.named_hosts import exactly_named_host
from services.cli.written_urls import page_of
from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, identify, shard_of
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
    only_active: bool = False
    """Of what the database has, only what is crawled: not what is gone or leads elsewhere."""

    def count(self, settings: Settings) -> int:
        """How many there are."""
        if self.urls:
            return len(self.urls)
        url = url_of_host(settings, self.host)
        return count_under(url, self.host, self.prefix, only_active=self.only_active)

    def parts(self, settings: Settings) -> Iterator[Sequence[str]]:
        """Their URLs, some thousand at a time."""
        if self.urls:
            yield self.urls
            return
        url = url_of_host(settings, self.host)
        yield from urls_under(url, self.host, self.prefix, only_active=self.only_active)


def selected(
    settings: Settings, urls: Iterable[str], host: str | None, prefix: str | None
) -> Selected:
    """The pages that one of the arguments names.

    Raises:
        UsageError: none of them names any, or several do.
        BadUrl, BadHost: what is named is not one that Freshet takes.
        UserError, StoreMismatch, psycopg.Error: as by `exactly_named_host`.
    """
    canonical = tuple(page_of(url).url for url in urls)
    if sum((bool(canonical), host is not None, prefix is not None)) != 1:
        raise click.UsageError("give URLs, or --host, or --prefix")
    if host is not None:
        return Selected(exactly_named_host(settings, host))
    if prefix is not None:
        page = page_of(prefix)
        return Selected(page.host, page.url)
    return Selected("", urls=canonical)


def publish(settings: Settings, pages: Selected, update_of: UpdateOf) -> int:
    """Say the same of all pages that are selected; how many they were.

    Where that fails, or is stopped, it says how many were asked for.
    """
    asked_for = 0

    def told(published: int) -> None:
        nonlocal asked_for
        asked_for = published

    def said() -> str | None:
        if not asked_for:
            return None
        # What is sent when it is stopped, or fails, the broker may have, or not.
        return (
            f"up to {asked_for:,} pages are asked for: call this again, for the others; what is "
            "asked for twice changes nothing"
        )

    with telling_how_far(said):
        asyncio.run(_publish(settings, pages, update_of, told))
    return asked_for


async def _publish(
    settings: Settings, pages: Selected, update_of: UpdateOf, told: Callable[[int], None]
) -> None:
    await go_by_broker(settings)
    published, now = 0, settings.clock().now()
    async with publishing(settings) as publisher:
        parts = pages.parts(settings)
        while urls := await asyncio.to_thread(next, parts, ()):
            shards = await publisher.partitions_of(PAGE_UPDATES)
            messages = _messages(map(identify, urls), update_of, now, shards)
            published += len(urls)
            told(published)
            await publisher.queue_batches(messages)


def _messages(
    pages: Iterable[PageIdentity], update_of: UpdateOf, now: float, shards: int
) -> ByPlace:
    messages: ByPlace = {}
    for page in pages:
        place = (PAGE_UPDATES.name, shard_of(page.host, shards))
        message = page.host.encode(), encode(update_of(page.url, now))
        messages.setdefault(place, []).append(message)
    return messages
