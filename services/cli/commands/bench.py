"""`freshet bench NAME`."""

import importlib
import json
import pkgutil
from typing import Any

import click

import services.bench
from services.cli.errors import UserError
from services.cli.output import show, show_rows


class _Benchmarks(click.Group):
    """A command for each module of `services.bench` that has one; loaded when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        names = [module.name for module in pkgutil.iter_modules(services.bench.__path__)]
        return sorted(name.replace("_", "-") for name in names if not name.startswith("_"))

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
    @click.option("--seed", type=int, help="Of the random pages.")
    @click.option("--option", "options", multiple=True, metavar="NAME=VALUE", help="Of its own.")
    @click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
    def run(pages: int | None, seed: int | None, options: tuple[str, ...], as_json: bool) -> None:
        chosen = _options(options) | {
            key: value for key, value in (("pages", pages), ("seed", seed)) if value is not None
        }
        try:
            answer = module.run(**chosen)
        except TypeError as error:
            raise UserError(f"{name} does not take these options: {error}") from error
        if isinstance(answer, list):
            show_rows(answer, as_json=as_json, empty="nothing was measured")
        else:
            show(answer, as_json=as_json)

    return run


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
