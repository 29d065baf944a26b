"""Pages and hosts that leave the database for good: by the estimators, a part at a time.

Whoever writes pages is their shard's estimator, so it is told by `page-updates`, as the schedulers
are; the next part is sent when the one before is durable. What no worker has in memory is deleted
from here: what crawls found, and what the poller and the receiver watch.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import click

from services.cli.applied import require_applied
from services.cli.databases import url_of_host
from services.cli.errors import SystemFailed
from services.cli.kafka import publishing
from shared.contracts.codec import encode
from shared.contracts.identity import PageIdentity, identify, shard_of
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import DEAD_LETTERS, HOST_LIMITS, PAGE_UPDATES, SIGNALS, TOPICS
from shared.rules.page_events import CONFIRMATIONS, FIRST_LOOK_SECONDS, LONGEST_RETRY_SECONDS
from shared.runtime.databases import databases_of
from shared.runtime.publisher import Place, Publisher
from shared.runtime.settings import Settings
from shared.store.asking_all import require_all_held
from shared.store.erased_traces import delete_observations, forget_watched
from shared.store.erasing import KEPT_SECONDS
from shared.store.layout import fetch_layout
from shared.store.positions import ESTIMATOR, read_applied
from shared.store.purging import Purgeable, Rhythm, count_left, count_purgeable, purgeable_urls
from shared.terminal.output import show, show_json
from shared.units import SECONDS_PER_DAY

LOOK_SECONDS: Final = 0.2

PATIENCE_SECONDS: Final = 120.0
"""An estimator that has not moved on for so long is not waited for any more."""

_NAMES_URLS: Final = (SIGNALS, DEAD_LETTERS)
"""Topics that are not keyed by host."""

Progress = Callable[[int, int | None], None]
"""Told how many pages of how many are erased."""


class Erasure(NamedTuple):
    """What was erased."""

    pages: int
    observations: int
    """What crawls found of them, and of what was erased before."""
    left: int = 0
    """Pages that were to be erased, and are still there."""


@dataclass(frozen=True, slots=True)
class Eraser:
    """Tells the estimators what to erase, and waits until it is durable."""

    settings: Settings
    publisher: Publisher

    async def erase(self, pages: Sequence[PageIdentity], *, whole_host: bool = False) -> int:
        """Erase pages.

        Returns:
            how many of them are still there, as what is known of them is newer, or as their
            estimator refuses it.

        Raises:
            SystemFailed: no estimator applies it, or one that cannot erase.
        """
        now, databases = self.settings.clock().now(), databases_of(self.settings)
        # Where its estimator reads it: one that passes it on would have applied nothing yet.
        layouts = {
            one: await asyncio.to_thread(fetch_layout, one.url)
            for one in {databases.of_host(page.host) for page in pages}
        }
        messages: dict[Place, list[tuple[bytes, bytes]]] = {}
        for page in pages:
            update = PageUpdate(
                "remove", page.url, updated_at=now, for_good=True, whole_host=whole_host
            )
            layout = layouts[databases.of_host(page.host)]
            place = (PAGE_UPDATES.name, layout.shard_of(page.host))
            messages.setdefault(place, []).append((page.host.encode(), encode(update)))
        await self._applied(await self.publisher.send_batches(messages))
        left = await asyncio.to_thread(count_left, databases, pages, now)
        if left.removed:
            raise SystemFailed(
                "an estimator of an older version has removed the pages and not erased them: "
                "bring all estimators up to date, then call `freshet pages purge --days 0`"
            )
        return left.there

    async def _applied(self, ends: Mapping[Place, int]) -> None:
        shared = databases_of(self.settings).shared(shard for _, shard in ends)
        left: dict[Place, int] = {}
        moved_at = time.monotonic()
        while True:
            before, found = left, dict[Place, int]()
            for database, shards in shared.items():
                found |= await asyncio.to_thread(read_applied, database.url, ESTIMATOR, shards)
            left = {p: found.get(p, 0) for p, end in ends.items() if found.get(p, 0) < end}
            if not left:
                return
            if left != before:  # What other topics and shards do says nothing of these.
                moved_at = time.monotonic()
            if time.monotonic() - moved_at > PATIENCE_SECONDS:
                raise SystemFailed(
                    "no estimator applies page-updates: what was sent will be erased when one "
                    "runs; then run this command again, for the rest"
                )
            await asyncio.sleep(LOOK_SECONDS)


def purge(settings: Settings, wanted: Purgeable, progress: Progress) -> Erasure:
    """Erase the pages that may go."""
    total, databases = count(settings, wanted), databases_of(settings)
    asyncio.run(_settled(settings, wanted.host))
    parts = purgeable_urls(databases, wanted)
    pages, left = asyncio.run(_erased(settings, _told(parts, total, progress)))
    return Erasure(pages, sum(delete_observations(one.url) for one in databases.each), left)


async def _settled(settings: Settings, host: str | None) -> None:
    """Wait until the database knows what is on the topics by now of pages that may be there again.

    Raises:
        UserError: no estimator applies it.
    """
    partitions: set[int] | None = None
    if host is not None:
        layout = await asyncio.to_thread(fetch_layout, databases_of(settings).of_host(host).url)
        partitions = {shard_of(host, shards) for shards in layout.counts}

    def told(_done: int, _total: int, what: str) -> None:
        click.echo(what, err=True)

    await require_applied(
        settings,
        told=told,
        seconds=PATIENCE_SECONDS,
        partitions=partitions,
        because="may say that pages which look gone are there again",
    )


def of_looks() -> Rhythm:
    """The rhythm in which pages that are gone are looked at."""
    return Rhythm(CONFIRMATIONS, FIRST_LOOK_SECONDS, LONGEST_RETRY_SECONDS)


def count(settings: Settings, wanted: Purgeable) -> int:
    """How many pages may go.

    Raises:
        StoreMismatch, psycopg.Error: as `shared.store.asking_all.url_of`.
    """
    databases = databases_of(settings)
    if wanted.host is None:
        require_all_held(databases, "cli")
    else:
        url_of_host(settings, wanted.host)
    return sum(count_purgeable(databases, wanted))


def _told(parts: Iterable[list[str]], total: int, progress: Progress) -> Iterator[list[str]]:
    """The parts; as each is asked for, those before are done."""
    done = 0
    for part in parts:
        progress(done, total)
        yield part
        done += len(part)
    progress(done, total)


async def _erased(
    settings: Settings, parts: Iterator[list[str]], host: PageIdentity | None = None
) -> tuple[int, int]:
    """Erase pages part by part; and in the end a host, by one of its URLs.

    Returns:
        how many pages were erased, and how many are still there.
    """
    named = left = 0
    async with publishing(settings) as publisher:
        eraser = Eraser(settings, publisher)
        if host is not None:
            await forget_rules(settings, publisher, host.host)
        while part := await asyncio.to_thread(next, parts, ()):
            left += await eraser.erase([identify(url) for url in part])
            named += len(part)
        erased = named - left
        if host is not None:
            # Its URL may be of a page that is counted.
            left = max(left, await eraser.erase([host], whole_host=True))
    return erased, left


async def forget_rules(settings: Settings, publisher: Publisher, host: str) -> None:
    """Leave nothing of a host's rules when their topic is compacted: on the partition that it has
    now, and on those that it had before shards became more."""
    layout = await asyncio.to_thread(fetch_layout, databases_of(settings).of_host(host).url)
    counts = {*layout.counts, await publisher.partitions_of(HOST_LIMITS)}
    for partition in {shard_of(host, count) for count in counts}:
        await (await publisher.send(HOST_LIMITS, host.encode(), None, partition=partition))


def erase_host(settings: Settings, host: str, progress: Progress) -> Erasure:
    """Erase a host and what is watched of it."""
    wanted = Purgeable(host=host, any_status=True)
    databases = databases_of(settings)
    # First: the poller would find its pages again.
    forget_watched(databases.home.url, host)
    parts = purgeable_urls(databases, wanted)
    told = _told(parts, count(settings, wanted), progress)
    pages, left = asyncio.run(_erased(settings, told, page_of_host(host)))
    return Erasure(pages, delete_observations(databases.of_host(host).url), left)


def page_of_host(host: str) -> PageIdentity:
    """A page that a host may have: by the scheme whose own port is not the host's."""
    pages = (identify(f"{scheme}://{host}/") for scheme in ("http", "https"))
    return next(page for page in pages if page.host == host)


def show_erased(erased: Erasure, *, of_host: bool, as_json: bool) -> None:
    """Say what was erased, and what of it is elsewhere.

    Raises:
        SystemFailed: not all of it was.
    """
    answer: dict[str, object] = erased._asdict()
    if as_json:
        show_json(answer | {"remains": what_remains(of_host=of_host)})
    else:
        show(answer, as_json=False)
        click.echo("What remains elsewhere:")
        for line in what_remains(of_host=of_host):
            click.echo(f"  {line}")
    if erased.left:
        raise SystemFailed(
            f"{erased.left:,} pages are still there: what was said of them last is newer than the "
            "erasure, or an estimator refused it (`freshet dead-letters list`). Run this command "
            "again, for them"
        )


def what_remains(*, of_host: bool) -> list[str]:
    """What is still somewhere afterwards, a line each."""
    kept: dict[float, list[str]] = {}
    for topic in TOPICS:
        if "retention.ms" in topic.config and (topic.key == "host" or topic in _NAMES_URLS):
            days = int(topic.config["retention.ms"]) / 1000 / SECONDS_PER_DAY
            kept.setdefault(days, []).append(topic.name)
    lines = [f"Kafka, {days:g} days: {', '.join(names)}" for days, names in sorted(kept.items())]
    if of_host:
        lines.append("Kafka, 7 days and until it is compacted: host-limits")
        lines.append("`freshet changes`: who erased the host, and who set its limits before")
        lines.append("schedulers, until they start again: the host's name")
    lines.append(f"the database, for {KEPT_SECONDS / SECONDS_PER_DAY:g} days: hashes of the URLs")
    return [*lines, "backups, logs, and what crawlers have stored"]
