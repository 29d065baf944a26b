"""`freshet explain URL`."""

import click

from services.cli.errors import UserError
from shared.terminal.output import show_json

DEFAULT_SCHEDULER = "http://127.0.0.1:6067"


@click.command()
@click.argument("url")
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    envvar="SCHEDULER_URLS",
    default=(DEFAULT_SCHEDULER,),
    show_default=True,
    help="Where to ask for λ_i and requests in flight. Repeatable; or SCHEDULER_URLS.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(url: str, schedulers: tuple[str, ...], as_json: bool) -> None:
    """Why the page at URL was, or was not, crawled.

    Shows what was learned of it, its state, its crawl value now, the threshold λ_i + λ₀ that the
    value must reach, when it is due, and its last crawls. Takes them from PostgreSQL, and from the
    page's scheduler if that answers.

    \b
    Examples:
      freshet explain https://example.com/news
      freshet explain https://example.com/news --json
    """
    from services.cli.explaining import explain, lines  # noqa: PLC0415 - commands load what they need
    from shared.runtime.asking import ask  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.explain import explain_page  # noqa: PLC0415
    from shared.store.multipliers import last_multipliers  # noqa: PLC0415

    settings = load_settings()
    database = settings.database_url.get_secret_value()
    known = explain_page(database, settings.partitions, url)
    if known is None:
        raise UserError(
            f"{url} is not one of the pages: add it with `freshet pages import`, and check that "
            f"FRESHET_PARTITIONS ({settings.partitions}) is the system's"
        )
    answers = (ask(address, "/pages", url=known["url"]) for address in schedulers)
    live = next((answer for answer in answers if answer), None)
    sent = last_multipliers(database, 1)
    now = settings.clock().now()
    answer = explain(known, live, sent[0]["multiplier"] if sent else None, now)
    if as_json:
        show_json(answer)
        return
    for line in lines(answer, now):
        click.echo(line)
