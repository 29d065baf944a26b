"""`freshet explain URL`."""

import click

from shared.terminal.output import show_json


@click.command()
@click.argument("url")
@click.option(
    "--scheduler",
    "schedulers",
    multiple=True,
    help="Where to ask for λ_i and requests in flight. Repeatable; else those of SCHEDULER_URLS.",
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
    from services.cli.written_urls import page_of  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - commands load what they need
    from shared.views.answers import page_answer  # noqa: PLC0415
    from shared.views.explaining import lines  # noqa: PLC0415

    given = {"scheduler_urls": " ".join(schedulers)} if schedulers else {}
    answer = page_answer(load_settings(**given), page_of(url).url)
    if as_json:
        show_json(answer)
        return
    for line in lines(answer, answer["now"]):
        click.echo(line)
