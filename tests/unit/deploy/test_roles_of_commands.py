"""Whoever gives commands finds for each of them which role its user of the database needs."""

import re
from collections.abc import Iterator

import click

from deploy.docs.places import TOP
from services.cli.main import main

ASK_NO_DATABASE = {
    *("contract", "settings", "kernels", "plan", "replay", "figures", "world"),
    *("topics ensure", "topics list", "bandwidth get", "groups list"),
    *("dead-letters drop", "dead-letters list", "dead-letters replay"),
}

OTHERWISE = {
    "worker": "a user of its own, by the table of roles",
    **dict.fromkeys(("run", "demo", "verify", "bench"), "databases of their own, as their owner"),
}
"""Command → whose user it is."""

ROW = re.compile(r"^\| (`freshet .+) \| .+ \|$", re.MULTILINE)


def commands(command: click.Command, context: click.Context) -> Iterator[str]:
    """Each command that does something."""
    if not isinstance(command, click.Group):
        yield context.command_path.removeprefix("freshet ")
        return
    for name in command.list_commands(context):
        if context.parent is None and name in ASK_NO_DATABASE | OTHERWISE.keys():
            yield name  # Some take seconds to load.
            continue
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, click.Context(found, info_name=name, parent=context))


def test_each_command_that_asks_the_database_has_its_role():
    named = re.findall(
        "`freshet ([^`]+)`", " ".join(ROW.findall((TOP / "deploy/security.md").read_text()))
    )
    assert len(named) == len(set(named))
    known = {*named, *ASK_NO_DATABASE, *OTHERWISE}
    there = set(commands(main, click.Context(main, info_name="freshet")))
    # A group stands for all of its commands.
    groups = {name for name in known if any(one.startswith(f"{name} ") for one in there)}
    assert {one for one in there - known if one.partition(" ")[0] not in groups} == set()
    assert known - there - groups == set()
