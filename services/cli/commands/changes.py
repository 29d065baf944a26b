"""`freshet changes`."""

import click

from shared.terminal.output import show_json, show_rows


@click.command()
@click.option("--host", help="Only changes of this host's limit, or of this group's.")
@click.option("--last", type=click.IntRange(1, 100_000), default=20, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def command(host: str | None, last: int, as_json: bool) -> None:
    """Who changed the budget and the limits of hosts, when, and to what; the newest last.

    Noted is what `freshet bandwidth`, `freshet hosts`, `freshet groups` and `freshet backup
    restore` set, and what `freshet hosts erase` and `freshet pages purge` are about to erase and
    have erased, under the name in FRESHET_OPERATOR, or that of the user and the machine. Whoever
    writes to the topics `bandwidth`, `host-limits`, `group-limits` and `page-updates` without them
    is not noted: let only operators.

    \b
    Examples:
      freshet changes
      freshet changes --host example.com --last 5
    """
    from services.cli.bandwidths import timed, when  # noqa: PLC0415 - commands load what they need
    from services.cli.databases import home_url  # noqa: PLC0415
    from shared.contracts.identity import host_name  # noqa: PLC0415
    from shared.rules.host_rules import usual_name  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.changes import last_changes  # noqa: PLC0415

    url = home_url(load_settings())
    changes = last_changes(url, last, host)[::-1]
    if host is not None and not changes:
        # A group has a name of its own, which is noted as it was given; any other is a host's.
        name = host_name(host)
        changes = last_changes(url, last, name) or last_changes(url, last, usual_name(name))
        changes = changes[::-1]
    if as_json:
        show_json([change._asdict() for change in changes])
        return
    rows = [
        {
            "at": when(c.at),
            "who": c.who,
            "about": c.host or c.about,
            "change": timed(c.change),
        }
        for c in changes
    ]
    show_rows(rows, as_json=False, empty="nothing was changed yet")
