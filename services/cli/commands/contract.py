"""`freshet contract`."""

import click

from shared.terminal.output import show_json


@click.command()
def command() -> None:
    """Print the topics and messages as an AsyncAPI document (JSON).

    \b
    Example:
      freshet contract > asyncapi.json
    """
    from shared.contracts.asyncapi import document  # noqa: PLC0415 - commands load what they need

    show_json(document())
