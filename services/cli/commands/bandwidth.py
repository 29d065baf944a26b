"""`freshet bandwidth get|set|schedule|history`."""

import asyncio
from typing import TYPE_CHECKING, Any

import click

from services.cli.bandwidths import (
    BadBandwidth,
    has_unit,
    history_rows,
    read_rate,
    read_schedule,
    require_meant,
    time_of_day,
    when,
)
from services.cli.errors import UserError
from shared.terminal.numbers import Number
from shared.terminal.output import show, show_json, show_rows
from shared.units import SECONDS_PER_DAY

if TYPE_CHECKING:
    from shared.contracts.messages import Bandwidth
    from shared.runtime.settings import Settings


class Rate(click.ParamType):
    """Crawls per second: `100/s`, `100` or `8640000/day`."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Crawls per second, or click's error."""
        if isinstance(value, float):
            return value
        try:
            return read_rate(str(value))
        except BadBandwidth as error:
            self.fail(str(error), param, ctx)


class WrittenRate(click.ParamType):
    """As `Rate`, and how it was written."""

    name = "rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, float]:
        """The text and crawls per second, or click's error."""
        if isinstance(value, tuple):
            return value
        return str(value), Rate().convert(value, param, ctx)


@click.group()
def command() -> None:
    """Read and set the budget of crawls for the whole system.

    A new budget takes effect within two seconds, without a spike; or slowly, in a ramp; or by the
    time of the day.

    \b
    Examples:
      freshet bandwidth get
      freshet bandwidth set 100/s
      freshet bandwidth set 5000000/day --ramp 600
      freshet bandwidth schedule "00:00=2/s 06:00=10/s 22:00=3/s" --timezone Europe/Berlin
      freshet bandwidth history
    """


@command.command("get")
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def get(as_json: bool) -> None:
    """Show the budget that holds, and what comes next."""
    from shared.runtime.settings import load_settings  # noqa: PLC0415 - commands load what they need

    settings = load_settings()
    _show(_current(settings), settings.clock().now(), as_json=as_json)


@command.command("set")
@click.argument("rate", type=WrittenRate())
@click.option(
    "--ramp",
    type=Number(0, SECONDS_PER_DAY),
    default=0.0,
    metavar="SECONDS",
    help="Go there evenly, in so many seconds of the clock.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def set_(rate: tuple[str, float], ramp: float, as_json: bool) -> None:
    """Set the budget to RATE: `100/s` or `5000000/day`. A schedule is over then.

    A number without a unit is crawls per second. One that is more than ten times the budget that
    stands is refused: it may be meant a day.
    """
    from services.cli.broker_time import go_by_broker, go_by_broker_if_told  # noqa: PLC0415
    from shared.contracts.messages import Bandwidth  # noqa: PLC0415
    from shared.pacing.budget import Budget  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings, (written, wanted) = load_settings(), rate
    # A ramp begins when it is said to; anything else holds when it comes.
    asyncio.run((go_by_broker if ramp > 0 else go_by_broker_if_told)(settings))
    now = settings.clock().now()
    before = None
    if ramp > 0 or not has_unit(written):
        last = _current(settings)
        holds = Budget.from_message(last).at(now).rate if last is not None else 0.0
        before = holds if ramp > 0 else None
        if last is not None and not has_unit(written):
            steps = (step.crawls_per_second for step in last.schedule)
            _require_meant(wanted, written, max(holds, last.crawls_per_second, *steps))
    message = Bandwidth(wanted, set_at=now, ramp_seconds=ramp, ramp_from=before)
    _publish(settings, message, as_json=as_json)


@command.command("schedule")
@click.argument("schedule", metavar="FILE|SCHEDULE")
@click.option(
    "--timezone", default="UTC", show_default=True, help="Whose day it is: Europe/Berlin, UTC, ..."
)
@click.option(
    "--ramp",
    type=Number(0, SECONDS_PER_DAY),
    default=0.0,
    metavar="SECONDS",
    help="Each change begins at its time, and takes so many seconds.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON.")
def schedule_(schedule: str, timezone: str, ramp: float, as_json: bool) -> None:
    """Set the budget by the time of the day, every day, until something else is set.

    The schedule is a list like "00:00=2/s 06:00=10/s 22:00=3/s", or a file with such entries.
    Before its first time, the last one of the day before holds.

    \b
    Examples:
      freshet bandwidth schedule "06:00=10/s 22:00=3/s" --timezone Europe/Berlin
      freshet bandwidth schedule nights.txt --ramp 900
    """
    from services.cli.broker_time import go_by_broker_if_told  # noqa: PLC0415
    from shared.contracts.daily import ScheduledRate  # noqa: PLC0415
    from shared.contracts.messages import Bandwidth  # noqa: PLC0415
    from shared.pacing.budget import Budget  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415

    settings = load_settings()
    asyncio.run(go_by_broker_if_told(settings))
    now = settings.clock().now()
    try:
        steps = [ScheduledRate(second, rate) for second, rate in read_schedule(schedule)]
        planned = Bandwidth(0.0, now, ramp, None, steps, timezone)
        rate = Budget.from_message(planned).at(now).rate
    except ValueError as error:
        raise UserError(str(error)) from error
    _publish(settings, Bandwidth(rate, now, ramp, None, steps, timezone), as_json=as_json)


@command.command("history")
@click.option("--last", type=click.IntRange(1, 100_000), default=20, show_default=True)
@click.option(
    "--cause",
    "causes",
    multiple=True,
    help="Only those: bandwidth, schedule, ramp, demand, silent-shard, new-shard, shortfall, "
    "groups, takeover, start. Repeatable.",
)
@click.option("--json", "as_json", is_flag=True, help="Answer as JSON, with all shares.")
def history(last: int, causes: tuple[str, ...], as_json: bool) -> None:
    """What the coordinator decided, when, and why; the newest last.

    \b
    Examples:
      freshet bandwidth history
      freshet bandwidth history --cause bandwidth --cause schedule --last 100
    """
    from services.cli.databases import home_url  # noqa: PLC0415
    from shared.runtime.settings import load_settings  # noqa: PLC0415
    from shared.store.multipliers import last_multipliers  # noqa: PLC0415

    rows = last_multipliers(home_url(load_settings()), last, causes)
    if as_json:
        show_json(rows[::-1])
        return
    show_rows(history_rows(rows), as_json=False, empty="nothing was decided yet")


def _require_meant(rate: float, written: str, standing: float) -> None:
    try:
        require_meant(rate, written, standing)
    except BadBandwidth as error:
        raise UserError(str(error)) from error


def _current(settings: "Settings") -> "Bandwidth | None":
    from services.cli.kafka import last_message  # noqa: PLC0415
    from shared.contracts.messages import Bandwidth  # noqa: PLC0415
    from shared.contracts.topics import BANDWIDTH  # noqa: PLC0415
    from shared.pacing.budget import Budget  # noqa: PLC0415

    # What coordinators refuse is in the dead letters; they go on with the one before.
    return asyncio.run(last_message(settings, BANDWIDTH, Bandwidth, Budget.from_message))


def _publish(settings: "Settings", message: "Bandwidth", *, as_json: bool) -> None:
    from msgspec import to_builtins  # noqa: PLC0415

    from services.cli.audit import note  # noqa: PLC0415
    from services.cli.kafka import publish_global  # noqa: PLC0415
    from shared.contracts.topics import BANDWIDTH  # noqa: PLC0415

    asyncio.run(publish_global(settings, BANDWIDTH, message))
    note(settings, "budget", None, to_builtins(message))
    _show(message, settings.clock().now(), as_json=as_json)


def _show(message: "Bandwidth | None", now: float, *, as_json: bool) -> None:
    answer = _answer(message, now)
    if as_json:
        show_json(answer)
        return
    times = {name: when(answer[name]) for name in ("set_at", "next_change_at") if answer.get(name)}
    show(answer | times, as_json=False)


def _answer(message: "Bandwidth | None", now: float) -> dict[str, Any]:
    """The budget now; of ramps and schedules only where there are some."""
    if message is None:
        return {"crawls_per_second": None, "crawls_per_day": None, "set_at": None}
    from shared.pacing.budget import Budget  # noqa: PLC0415

    budget = Budget.from_message(message)
    stretch = budget.at(now)
    answer: dict[str, Any] = {
        "crawls_per_second": stretch.rate,
        "crawls_per_day": stretch.rate * SECONDS_PER_DAY,
        "set_at": message.set_at,
    }
    if stretch.ramp_seconds > 0:
        answer |= {"ramp_to": stretch.ramp_to, "ramp_seconds_left": stretch.ramp_seconds}
    if message.schedule:
        answer |= {
            "schedule": {time_of_day(s.second): s.crawls_per_second for s in message.schedule},
            "timezone": message.timezone,
            "next_change_at": budget.next_change(now),
        }
    return answer
