"""`freshet bandwidth get|set`."""

import asyncio
from typing import Any

import click

from services.cli.output import show

SECONDS_PER_DAY = 86_400.0


class Rate(click.ParamType):
    """Crawls per second: `100/s`, `100` or `8640000/day`."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Crawls per second, or click's error."""
        if isinstance(value, float):
            return value
        number, _, unit = str(value).partition("/")
        try:
            rate = float(number) / {"": 1.0, "s": 1.0, "day": SECONDS_PER_DAY}[unit.strip()]
        except (ValueError, KeyError):
            self.fail(f"{value!r} is not a rate like 100/s or 5000/day", param, ctx)
        if not 0 <= rate <= 1e9:
            self.fail(f"{value!r} is not between 0 and 1e9 crawls per second", param, ctx)
        return rate


@click.group()
def command() -> None:
    """Read and set the budget of crawls for the whole system.

    A new budget takes effect within two seconds, without a spike.

    \b
    Examples:
      freshet bandwidth get
      freshet bandwidth set 100/s
      freshet bandwidth set 5000000/day
    """


@command.command("get")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def get(as_json: bool) -> None:
    """Show the budget that holds."""
    from services.cli.kafka import last_message  # noqa: PLC0415
    from shared.contracts.messages import Bandwidth  # noqa: PLC0415
    from shared.contracts.topics import BANDWIDTH  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    message = asyncio.run(last_message(load_settings(), BANDWIDTH, Bandwidth))
    rate = message.crawls_per_second if message else None
    show(_answer(rate, message.set_at if message else None), as_json=as_json)


@command.command("set")
@click.argument("rate", type=Rate())
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def set_(rate: float, as_json: bool) -> None:
    """Set the budget to RATE: `100/s` or `5000000/day`."""
    from services.cli.kafka import publish_global  # noqa: PLC0415
    from shared.contracts.messages import Bandwidth  # noqa: PLC0415
    from shared.contracts.topics import BANDWIDTH  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    now = settings.clock().now()
    asyncio.run(publish_global(settings, BANDWIDTH, Bandwidth(rate, set_at=now)))
    show(_answer(rate, now), as_json=as_json)


def _answer(rate: float | None, set_at: float | None) -> dict[str, Any]:
    return {
        "crawls_per_second": rate,
        "crawls_per_day": None if rate is None else rate * SECONDS_PER_DAY,
        "set_at": set_at,
    }
