"""The options of `freshet run` that say how the simulated crawlers and hosts behave."""

from typing import TYPE_CHECKING, Any, Final

import click

from shared.terminal.numbers import Number

if TYPE_CHECKING:
    from services.run.options import FleetPlan

_SHARE: Final = Number(0, 1)

_FIELDS: Final = {
    "fleet_capacity": "crawls_per_second",
    "fleet_latency": "latency_seconds",
    "fleet_latency_spread": "latency_spread",
    "fleet_silent": "silent_share",
    "fleet_failing": "failed_share",
    "fleet_throttled": "throttled_share",
    "fleet_dead_hosts": "dead_hosts_share",
    "fleet_storms": "storm_share",
    "fleet_waves": "wave_share",
}
"""By option: the field of the plan."""

FLEET_OPTIONS: Final[list[Any]] = [
    click.option(
        "--fleet-capacity",
        type=Number(min=0, min_open=True),
        help="Crawls in a second of the wall that all crawlers together can do. [any number]",
    ),
    click.option("--fleet-latency", type=Number(min=0), help="Seconds that a crawl takes. [0.02]"),
    click.option(
        "--fleet-latency-spread",
        type=Number(0, 5),
        help="How far hosts differ in that: standard deviation of its logarithm. [0]",
    ),
    click.option("--fleet-silent", type=_SHARE, help="Part of the pages never answered. [0]"),
    click.option("--fleet-failing", type=_SHARE, help="Part of the crawls that fail. [0]"),
    click.option("--fleet-throttled", type=_SHARE, help="Part of the crawls answered 429. [0]"),
    click.option("--fleet-dead-hosts", type=_SHARE, help="Part of the hosts that are dead. [0]"),
    click.option(
        "--fleet-storms", type=_SHARE, help="Part of the time in which a host answers 503. [0]"
    ),
    click.option(
        "--fleet-waves", type=_SHARE, help="Part of the time in which a host answers 404. [0]"
    ),
]


def fleet_plan(given: dict[str, Any]) -> "FleetPlan":
    """The fleet that the options ask for; what is left out is as it always is."""
    from services.run.options import FleetPlan  # noqa: PLC0415 - commands load what they need

    named = {field: given.get(option) for option, field in _FIELDS.items()}
    return FleetPlan(**{field: value for field, value in named.items() if value is not None})
