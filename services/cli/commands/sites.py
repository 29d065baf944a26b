"""`freshet sites add|list|remove`."""

import asyncio
import secrets
from typing import TYPE_CHECKING, Any

import click

from services.cli.errors import UserError
from shared.terminal.output import show, show_rows

if TYPE_CHECKING:
    from shared.contracts.identity import PageIdentity
    from shared.discovery.looking import Found
    from shared.runtime.settings import Settings

_ID_BYTES = 16
_SECRET_BYTES = 32


@click.group()
def command() -> None:
    """Sites whose sitemaps and feeds the poller reads.

    `add` looks for robots.txt, sitemaps, feeds and hubs. The poller (`freshet worker poller`) reads
    what was found within seconds, and then as often as it brings news: new addresses become pages,
    dates that move on become signals.

    \b
    Examples:
      freshet sites add https://example.com
      freshet sites add https://example.com --include 'https://example.com/blog/*'
      freshet sites add https://example.com --source https://example.com/hidden/sitemap.xml
      freshet sites list --json
      freshet sites remove https://example.com
    """


@command.command("add")
@click.argument("url")
@click.option("--host", "hosts", multiple=True, help="Pages of this host count, too.")
@click.option("--include", multiple=True, help="Only URLs that fit a pattern with *.")
@click.option("--exclude", multiple=True, help="No URLs that fit a pattern with *.")
@click.option("--source", "named", multiple=True, help="A sitemap or feed that nothing names.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def add(
    url: str,
    hosts: tuple[str, ...],
    include: tuple[str, ...],
    exclude: tuple[str, ...],
    named: tuple[str, ...],
    as_json: bool,
) -> None:
    """Watch the site at URL, or change how it is watched."""
    from services.cli.named_hosts import named_host  # noqa: PLC0415
    from services.cli.written_urls import page_of  # noqa: PLC0415
    from shared.contracts.identity import is_private_host  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.watched import Site  # noqa: PLC0415

    settings, page = load_settings(), page_of(url)
    named_hosts = [named_host(settings, one) for one in hosts]
    if is_private_host(page.host) and not settings.allow_private_hosts:
        raise UserError(
            f"{page.host} is not on the public internet: FRESHET_ALLOW_PRIVATE_HOSTS lets it"
        )
    found = asyncio.run(_looked_at(settings, page))
    for one in named:
        found.sources[page_of(one).url] = "operator"
    counted = list(dict.fromkeys([*found.hosts, *named_hosts]))
    _require_not_just_erased(settings, counted)
    is_new = _store(settings, Site(page.url, counted, list(include), list(exclude)), found)
    subscribed = _subscribed(settings, found) if settings.receiver_url else []
    show(
        {
            "site": page.url,
            "added": is_new,
            "hosts": counted,
            "sources": sorted(found.sources),
            "hubs": found.hubs,
            "subscribed": subscribed,
            "notes": found.notes,
        },
        as_json=as_json,
    )


@command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def list_(as_json: bool) -> None:
    """Show what each sitemap, feed and stream of events costs, and what it has brought.

    Precision is the share of its signals that were followed by a change, recall the share of its
    site's changes that it announced, both as learned from crawls; delay is seconds from the time
    that a signal carries until the poller had it. Staleness saved is how many pages of importance
    one are fresh, on average, because it is read every so many seconds and not only every
    FRESHET_POLLER_LONGEST_SECONDS; cost is its polls in crawls a day. A dash: not known yet.

    Of a stream (FRESHET_POLLER_STREAMS) entries are events, bad entries those that could not be
    read, polls are connections, gaps are times that its server had forgotten our place, and
    failures are connections in a row that brought nothing. A site is what `freshet sites add` was
    told; a stream has none.
    """
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.views.answers import sources_answer, streams_answer  # noqa: PLC0415

    settings = load_settings()
    rows = sources_answer(settings) + streams_answer(settings)
    show_rows(rows, as_json=as_json, empty="no site is watched")


@command.command("remove")
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def remove(url: str, as_json: bool) -> None:
    """Watch the site at URL no more. Its pages stay; its subscriptions to hubs end."""
    from services.cli.databases import home_url  # noqa: PLC0415
    from services.cli.written_urls import page_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.connection import connect  # noqa: PLC0415
    from shared.store.subscriptions import unwant_subscription  # noqa: PLC0415
    from shared.store.watched import remove_site  # noqa: PLC0415

    site = page_of(url).url
    with connect(home_url(load_settings()), "cli", autocommit=True) as connection:
        gone = remove_site(connection, site)
        if gone is None:
            raise UserError(f"{site} is not watched: `freshet sites list` shows all")
        ended = [topic for topic in [site, *gone] if unwant_subscription(connection, topic)]
    show({"site": site, "removed": True, "sources": gone, "unsubscribed": ended}, as_json=as_json)


async def _looked_at(settings: "Settings", page: "PageIdentity") -> "Found":
    from shared.discovery.looking import look_at  # noqa: PLC0415
    from shared.runtime.fetching import Fetcher  # noqa: PLC0415

    fetcher = Fetcher(
        allow_private=settings.allow_private_hosts, user_agent=settings.poller_user_agent
    )
    await fetcher.start()
    try:
        return await look_at(fetcher, page, settings.poller_user_agent)
    finally:
        await fetcher.stop()


def _require_not_just_erased(settings: "Settings", hosts: list[str]) -> None:
    """What is found is dated back by some minutes: of a host that was erased in between it would
    come to nothing, and the poller would take it for known."""
    from services.cli.databases import url_of_host  # noqa: PLC0415
    from shared.discovery.updates import BEHIND_SECONDS  # noqa: PLC0415
    from shared.store.connection import connect  # noqa: PLC0415
    from shared.store.erasing import host_erased_at  # noqa: PLC0415

    for host in hosts:
        with connect(url_of_host(settings, host), "cli", autocommit=True) as connection:
            left = host_erased_at(connection, host) + BEHIND_SECONDS - settings.clock().now()
        if left > 0.0:
            raise UserError(
                f"{host} was erased a moment ago: what is found there makes no pages yet. Add the "
                f"site in {-(-left // 60):.0f} minutes"
            )


def _store(settings: "Settings", site: Any, found: "Found") -> bool:
    from services.cli.databases import home_url  # noqa: PLC0415
    from shared.contracts.identity import identify  # noqa: PLC0415
    from shared.discovery.looking import source_of  # noqa: PLC0415
    from shared.discovery.robots import robots_url  # noqa: PLC0415
    from shared.store.connection import connect  # noqa: PLC0415
    from shared.store.watched import ROBOTS, NewSource, add_site, add_sources  # noqa: PLC0415

    # Sitemaps that it names later are found later.
    robots = robots_url(site.site)
    sources = [NewSource(robots, identify(robots).host, source_of(robots), ROBOTS, ROBOTS)]
    sources += [
        NewSource(url, identify(url).host, source_of(url), "", how)
        for url, how in found.sources.items()
    ]
    with connect(home_url(settings), "cli", autocommit=True) as connection:
        is_new = add_site(connection, site)
        add_sources(connection, site.site, sources)
    return is_new


def _subscribed(settings: "Settings", found: "Found") -> list[str]:
    """Topics of hubs that the receiver is to subscribe to."""
    from services.cli.databases import home_url  # noqa: PLC0415
    from services.cli.written_urls import page_of  # noqa: PLC0415
    from shared.store.connection import connect  # noqa: PLC0415
    from shared.store.subscriptions import add_subscription  # noqa: PLC0415

    topics = [page_of(topic).url for topic in found.hubs]
    with connect(home_url(settings), "cli", autocommit=True) as connection:
        for topic in topics:
            new_id, secret = secrets.token_hex(_ID_BYTES), secrets.token_urlsafe(_SECRET_BYTES)
            add_subscription(connection, new_id, topic, None, secret)
    return topics
