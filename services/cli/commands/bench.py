"""`freshet bench NAME`."""

import importlib
import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

import services.bench
from services.cli.errors import UserError
from shared.terminal.output import show, show_rows

DEFAULT_PAGES = 100_000
"""For a benchmark that leaves the number to its caller."""


DEFAULT_SETS = 5_000
"""Random sets that a benchmark checks for accuracy."""

_ENTRY = re.compile(r"^def (run|command)\(", re.MULTILINE)


class _Benchmarks(click.Group):
    """A command for each module of `services.bench` that has one; loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        folder = Path(services.bench.__path__[0])
        # Read, not imported: a list must not load the mathematics.
        measuring = (f for f in folder.glob("*.py") if _ENTRY.search(f.read_text()))
        return sorted(file.stem.replace("_", "-") for file in measuring)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        return _command(cmd_name)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Benchmarks"):
            formatter.write_dl([(name, "") for name in self.list_commands(ctx)])


@click.group(cls=_Benchmarks)
def command() -> None:
    """Measure how fast the parts are on this machine.

    \b
    Examples:
      freshet bench value --json
      freshet bench pipeline --pages 1000000 --json
    """


def _command(name: str) -> click.Command:
    """The module's own `command`, or one around its `run(**options)`."""
    module = importlib.import_module(f"services.bench.{name.replace('-', '_')}")
    own = getattr(module, "command", None)
    if isinstance(own, click.Command):
        return own
    lines = (module.__doc__ or "").strip().splitlines()

    @click.command(name, help=lines[0] if lines else None)
    @click.option("--pages", type=click.IntRange(min=1), help="How many pages; absent: its own.")
    @click.option("--sets", type=click.IntRange(min=1), help="Random sets checked for accuracy.")
    @click.option("--seed", type=int, help="Of the random pages.")
    @click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Of its own.")
    @click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
    def run(options: tuple[str, ...], as_json: bool, **given: int | None) -> None:
        answer = module.run(**_arguments(name, module.run, _options(options), given))
        if isinstance(answer, list):
            show_rows(answer, as_json=as_json, empty="nothing was measured")
        else:
            show(answer, as_json=as_json)

    return run


def _arguments(
    name: str,
    function: Callable[..., Any],
    options: dict[str, Any],
    given: dict[str, int | None],
) -> dict[str, Any]:
    """What the benchmark is called with: the options, and defaults where it has none itself."""
    known = inspect.signature(function).parameters
    defaults = {"pages": DEFAULT_PAGES, "sets": DEFAULT_SETS, "seed": 0}
    for option, default in defaults.items():
        if given[option] is not None:
            options[option] = given[option]
        elif option in known and known[option].default is inspect.Parameter.empty:
            options.setdefault(option, default)
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise UserError(f"{name} has no option {', '.join(unknown)}; it has {', '.join(known)}")
    missing = [
        option
        for option, parameter in known.items()
        if parameter.default is inspect.Parameter.empty and option not in options
    ]
    if missing:
        raise UserError(f"{name} needs --option {missing[0]}=VALUE")
    return options


def _options(given: tuple[str, ...]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for item in given:
        name, separator, value = item.partition("=")
        if not separator:
            raise UserError(f"--option {item}: write NAME=VALUE")
        try:
            options[name.replace("-", "_")] = json.loads(value)
        except json.JSONDecodeError:
            options[name.replace("-", "_")] = value
    return options
