"""`freshet pages import|remove|purge|max-age`."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from shared.contracts.fields import MAX_DAYS
from shared.terminal.numbers import Number
from shared.terminal.output import show
from shared.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from shared.runtime.settings import Settings
    from shared.store.import_rows import ImportReport, PageBatch


@click.group()
def command() -> None:
    """Import, remove and erase pages, and bound their ages.

    \b
    Examples:
      freshet pages import pages.csv.gz
      freshet pages import pages.parquet --via kafka
      freshet pages remove https://example.com/old
      freshet pages remove --prefix https://example.com/shop/ --dry-run
      freshet pages purge --days 90 --dry-run
      freshet pages max-age --host example.com --none
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
@click.option(
    "--ignore-column",
    "ignored",
    multiple=True,
    metavar="NAME",
    help="Leave out this column, which looks like a misspelt one. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def import_(file: Path, via: str, ignored: tuple[str, ...], as_json: bool) -> None:
    """Import the pages of FILE: CSV (plain or .gz) or Parquet.

    Columns: url, importance (request rate, or any positive weight), and if there max_age_days
    (crawl at least this often; empty: no bound of its own), crawled_at (Unix seconds at which the
    copy that is already held was crawled; absent: the page is new) and class (see FRESHET_CLASSES;
    empty: none). Pages that are known get the new weight, and a new bound and class where there is
    a column of them: without one what they have stays, whichever way they go. Other columns are
    left out, and named; one that is almost called like one of these is refused.

    Rows that cannot be taken are refused, and counted; the first ones are named with their reasons,
    by their numbers in the file without its head. Then it exits 1; the other rows are in. What
    fails or is stopped half-way says how many rows are in, and may be called again: a row that
    comes twice changes nothing.
    """
    from services.cli.import_bar import ImportBar  # noqa: PLC0415
    from services.cli.import_ends import require_none_refused, telling_what_is_in  # noqa: PLC0415
    from services.cli.page_files import read_rows  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.writer_lock import StoreBusy  # noqa: PLC0415

    settings, seen = load_settings(), list["ImportReport"]()
    with telling_what_is_in(seen), ImportBar() as bar:

        def progress(report: "ImportReport") -> None:
            seen[:] = [report]
            bar.advance(report.read, None)

        def tell(names: list[str]) -> None:
            others[:] = names

        used, others = via, list[str]()
        if via != "kafka":
            try:
                report = _copy(settings, read_rows(file, tell, ignored), progress)
                used = "copy"
            except StoreBusy:
                if via == "copy":
                    raise
                used = "kafka"
        if used == "kafka":
            report = _publish(settings, read_rows(file, tell, ignored), progress)
    answer = _answer(report, used)
    show(answer | ({"columns_left_out": others} if others else {}), as_json=as_json)
    require_none_refused(report)


def _of_several(function: Any) -> Any:
    """The options of a command about pages by URL, host or prefix."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Answer as JSON."),
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Only say how many pages it would be."),
        click.option("--prefix", metavar="URL", help="All known pages whose URLs begin so."),
        click.option("--host", help="All known pages of this host."),
        click.argument("urls", nargs=-1, metavar="[URL...]"),
    ):
        function = option(function)
    return function


def _is_wanted(
    count: Callable[[], int],
    would: str,
    question: str,
    *,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> bool:
    """Whether to go on: a dry run only says how many pages it would be, and people may say no.

    Raises:
        click.Abort: they did.
        SystemFailed: there is nobody to ask.
    """
    from services.cli.confirming import confirm  # noqa: PLC0415 - commands load what they need

    if yes and not dry_run:
        return True
    counted = count()
    if dry_run:
        show({would: counted}, as_json=as_json)
        return False
    confirm(question.format(counted))
    return True


@command.command("remove")
@_of_several
def remove(
    urls: tuple[str, ...],
    host: str | None,
    prefix: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Never crawl pages again, until they are imported again: those at URL, of a host, or below a
    prefix. Links that lead to them do not bring them back."""
    from services.cli.selected_pages import publish, selected  # noqa: PLC0415
    from shared.contracts.messages import PageUpdate  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    pages = selected(settings, urls, host, prefix)
    if _is_wanted(
        lambda: pages.count(settings),
        "would_remove",
        "Remove {:,} pages?",
        dry_run=dry_run,
        yes=yes or bool(pages.urls),
        as_json=as_json,
    ):
        asked_for = publish(
            settings, pages, lambda url, now: PageUpdate("remove", url, updated_at=now)
        )
        show({"asked_for": asked_for}, as_json=as_json)


@command.command("purge")
@click.option(
    "--days",
    type=Number(min=0),
    default=30.0,
    show_default=True,
    help="They have been removed or gone for longer.",
)
@click.option(
    "--only", type=click.Choice(["removed", "gone"]), help="Only one of both; absent: both."
)
@click.option("--host", help="Only those of a host.")
@click.option("--dry-run", is_flag=True, help="Only say how many pages it would be.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def purge(
    days: float, only: str | None, host: str | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Erase pages that were removed, or that have been gone, for longer than so many days.

    Those that lead to another page, or name another URL as theirs, count as gone.

    Nothing is kept of them: their crawl records, the times of their signals and what was predicted
    go as well. A link or a sitemap that names one later makes it a new page. All workers run on;
    the estimators erase a part at a time. What is stopped half-way is done by the same command.
    """
    from services.cli.audit import note  # noqa: PLC0415
    from services.cli.broker_time import go_by_broker, go_by_broker_or_database  # noqa: PLC0415
    from services.cli.erasing import count, of_looks, show_erased  # noqa: PLC0415
    from services.cli.erasing import purge as erase  # noqa: PLC0415
    from services.cli.erasing_bar import erasing_with_a_bar  # noqa: PLC0415
    from services.cli.named_hosts import exactly_named_host  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.purging import Purgeable  # noqa: PLC0415

    settings = load_settings()
    name = None if host is None else exactly_named_host(settings, host)
    asyncio.run((go_by_broker_or_database if dry_run else go_by_broker)(settings))
    before = settings.clock().now() - days * SECONDS_PER_DAY
    wanted = Purgeable(
        before, removed=only != "gone", gone=only != "removed", host=name, rhythm=of_looks()
    )
    if not _is_wanted(
        lambda: count(settings, wanted),
        "would_erase",
        "Erase {:,} pages for good?",
        dry_run=dry_run,
        yes=yes,
        as_json=as_json,
    ):
        return
    note(settings, "pages", name, {"erases": only or "both", "days": days})
    with erasing_with_a_bar() as progress:
        erased = erase(settings, wanted, progress)
    note(settings, "pages", name, {"erased": erased.pages})
    show_erased(erased, of_host=False, as_json=as_json)


@command.command("max-age")
@_of_several
@click.option("--days", type=Number(0, MAX_DAYS, min_open=True), help="The oldest copy.")
@click.option("--none", "without", is_flag=True, help="They have no bound of their own any more.")
def max_age(
    urls: tuple[str, ...],
    host: str | None,
    prefix: str | None,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    days: float | None,
    without: bool,
) -> None:
    """Set the maximum age of pages, or clear it: of those at URL, of a host, or below a prefix.

    Weights stay. A URL that is not known becomes a page, and one that is gone or leads elsewhere is
    crawled again. Of a host, or below a prefix, such pages stay as they are.
    """
    from dataclasses import replace  # noqa: PLC0415

    from services.cli.selected_pages import publish, selected  # noqa: PLC0415
    from shared.contracts.messages import PageUpdate  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    if (days is None) != without:
        raise click.UsageError("give --days or --none")
    settings = load_settings()
    pages = replace(selected(settings, urls, host, prefix), only_active=True)
    if not _is_wanted(
        lambda: pages.count(settings),
        "would_change",
        "Change the maximum age of {:,} pages that are crawled?",
        dry_run=dry_run,
        yes=yes or bool(pages.urls),
        as_json=as_json,
    ):
        return
    asked_for = publish(
        settings,
        pages,
        lambda url, now: PageUpdate(
            "upsert", url, max_age_days=days, updated_at=now, no_max_age=without
        ),
    )
    show({"asked_for": asked_for}, as_json=as_json)


def _copy(settings: "Settings", rows: "Iterator[PageBatch]", progress: Any) -> "ImportReport":
    from services.cli.broker_time import go_by_broker_or_database  # noqa: PLC0415
    from shared.runtime.databases import databases_of  # noqa: PLC0415
    from shared.store.import_rows import gathered  # noqa: PLC0415
    from shared.store.imports import ROWS_A_BATCH, import_shared  # noqa: PLC0415

    asyncio.run(go_by_broker_or_database(settings))
    return import_shared(
        databases_of(settings),
        settings.partitions,
        gathered(rows, ROWS_A_BATCH),
        now=settings.clock().now(),
        progress=progress,
        private_hosts=settings.allow_private_hosts,
    )


def _publish(settings: "Settings", rows: "Iterator[PageBatch]", progress: Any) -> "ImportReport":
    from services.cli.page_updates import publish_rows  # noqa: PLC0415

    return asyncio.run(publish_rows(settings, rows, progress))


def _answer(report: "ImportReport", via: str) -> dict[str, Any]:
    answer: dict[str, Any] = {"via": via, "read": report.read}
    if via == "kafka":
        answer["published"] = report.added
    else:
        answer |= {"added": report.added, "updated": report.updated}
    return answer | {"refused": report.refused, "reasons": report.reasons}
