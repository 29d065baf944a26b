"""The page of the commands: what `--help` says, of every one."""

import click

from services.cli.main import COMMANDS, main

_HEAD = """# Commands

What `freshet … --help` says. Commands that answer do so as JSON with `--json`; whatever goes wrong
is one line on standard error, and an exit code other than 0.

"""


def page() -> str:
    """The page, in Markdown."""
    context = click.Context(main, info_name="freshet", max_content_width=96)
    parts = []
    for name in COMMANDS:
        command = main.get_command(context, name)
        if command is not None:
            parts += _described(command, context, name, "##")
    return _HEAD + "\n".join(parts)


def _described(command: click.Command, parent: click.Context, name: str, mark: str) -> list[str]:
    context = click.Context(command, info_name=name, parent=parent, max_content_width=96)
    parts = [f"{mark} {context.command_path}\n", f"```text\n{command.get_help(context)}\n```\n"]
    if isinstance(command, click.Group) and name != "bench":
        for child in command.list_commands(context):
            part = command.get_command(context, child)
            if part is not None:
                parts += _described(part, context, child, f"{mark}#")
    return parts
