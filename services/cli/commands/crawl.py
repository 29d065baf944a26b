"""`freshet crawl`."""

import asyncio

import click

from shared.terminal.output import show


@click.command()
@click.argument("urls", nargs=-1, required=True, metavar="URL...")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(urls: tuple[str, ...], as_json: bool) -> None:
    """Crawl the pages at URL at once, ahead of all others.

    Within the limits of their hosts and the budget: a host that is blocked stays so. They need not
    wait for FRESHET_LEAST_INTERVAL_SECONDS, nor after a crawl that failed. The first crawl from now
    on that gets a page is the answer. A URL that is not known becomes a page.

    \b
    Examples:
      freshet crawl https://example.com/news
      freshet crawl https://example.com/a https://example.com/b --json
    """
    from services.cli.page_updates import publish_urgent  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    pages = asyncio.run(publish_urgent(load_settings(), urls))
    show({"asked_for": [page.url for page in pages]}, as_json=as_json)
