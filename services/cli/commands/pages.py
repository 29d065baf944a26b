"""`freshet pages import|remove`."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shared.terminal.output import show

if TYPE_CHECKING:
    from shared.runtime.settings import Settings
    from shared.store.imports import ImportReport


@click.group()
def command() -> None:
    """Import and remove pages.

    \b
    Examples:
      freshet pages import pages.csv.gz
      freshet pages import pages.parquet --via kafka
      freshet pages remove https://example.com/old
    """


@command.command("import")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--via",
    type=click.Choice(["auto", "copy", "kafka"]),
    default="auto",
    show_default=True,
    help="copy: straight into PostgreSQL, for millions of rows, while no estimator runs; "
    "schedulers that run learn of them within seconds. "
    "kafka: as page-updates, so that running workers learn of them at once. "
    "auto: copy, or kafka where an estimator runs.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def import_(file: Path, via: str, as_json: bool) -> None:
    """Import the pages of FILE: CSV (plain or .gz) or Parquet.

    Columns: url, importance (request rate, or any positive weight), and if there max_age_days
    (crawl at least this often) and crawled_at (Unix seconds at which the copy that is already held
    was crawled; absent: the page is new). Pages that are known get the new weight and bound.
    """
    from services.cli.import_bar import ImportBar  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.imports import StoreBusy  # noqa: PLC0415

    settings = load_settings()
    with ImportBar() as bar:

        def progress(report: "ImportReport") -> None:
            bar.advance(report.read, None)

        used = via
        if via != "kafka":
            try:
                report = _copy(settings, file, progress)
                used = "copy"
            except StoreBusy:
                if via == "copy":
                    raise
                used = "kafka"
        if used == "kafka":
            report = _publish(settings, file, progress)
    show(_answer(report, used), as_json=as_json)


@command.command("remove")
@click.argument("url")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def remove(url: str, as_json: bool) -> None:
    """Never crawl the page at URL again, until it is imported again."""
    from services.cli.page_updates import publish_removal  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    page = asyncio.run(publish_removal(load_settings(), url))
    show({"removed": page.url, "page_id": page.page_id, "host": page.host}, as_json=as_json)


def _copy(settings: "Settings", file: Path, progress: Any) -> "ImportReport":
    from services.cli.page_files import read_rows  # noqa: PLC0415
    from shared.store.imports import PageBatch, import_pages  # noqa: PLC0415

    batches = (
        PageBatch(rows.urls, rows.importance, rows.max_age_days, rows.crawled_at)
        for rows in read_rows(file)
    )
    return import_pages(
        settings.database_url.get_secret_value(),
        settings.partitions,
        batches,
        now=settings.clock().now(),
        progress=progress,
    )


def _publish(settings: "Settings", file: Path, progress: Any) -> "ImportReport":
    from services.cli.page_files import read_rows  # noqa: PLC0415
    from services.cli.page_updates import publish_rows  # noqa: PLC0415

    return asyncio.run(publish_rows(settings, read_rows(file), progress))


def _answer(report: "ImportReport", via: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"via": via, "read": report.read}
    if via == "kafka":
        answer["published"] = report.added
    else:
        answer |= {"added": report.added, "updated": report.updated}
    return answer | {"refused": report.refused, "reasons": report.reasons}
