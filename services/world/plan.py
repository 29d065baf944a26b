"""What a simulated world is made of and how long it lasts: the file that starts it."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

Share = Annotated[float, Meta(ge=0, le=1)]


class BudgetStep(Struct, frozen=True, forbid_unknown_fields=True):
    """The budget from a day on."""

    day: Annotated[float, Meta(ge=0)]
    crawls_per_second: Annotated[float, Meta(ge=0)]
    """Clock seconds."""


class FleetPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """How the simulated crawlers behave."""

    latency_seconds: Annotated[float, Meta(ge=0)] = 0.02
    """Seconds of the wall that a crawl takes at the middle one of all hosts."""
    latency_spread: Annotated[float, Meta(ge=0, le=5)] = 0.0
    """How far hosts differ in that: the standard deviation of its logarithm."""
    crawls_per_second: Annotated[float, Meta(gt=0)] | None = None
    """Seconds of the wall: the most that all crawlers together can do; absent: anything."""
    silent_share: Share = 0.0
    """Pages that are never answered, as crawlers drop them without a word."""
    dead_hosts_share: Share = 0.0
    """Hosts that do not answer: each crawl of theirs fails."""
    storm_share: Share = 0.0
    """Part of the time in which a host answers everything with a server error, each by itself."""
    storm_hours: Annotated[float, Meta(gt=0)] = 2.0
    """Clock hours that such a storm lasts."""
    wave_share: Share = 0.0
    """Part of the time in which a host answers everything with 404, as after a bad deployment."""
    wave_hours: Annotated[float, Meta(gt=0)] = 0.5
    """Clock hours that such a wave lasts."""
    failed_share: Share = 0.0
    """Crawls that end with a server error."""
    throttled_share: Share = 0.0
    """Crawls that the host answers with 429 and Retry-After."""
    retry_after_seconds: Annotated[float, Meta(ge=0)] = 600.0
    """Clock seconds that a throttling host asks for."""
    digests: bool = False
    """Answer with a digest of the content, instead of saying whether it changed."""


class WorldPlan(Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that a world process needs beside the settings."""

    kind: Literal["generated", "trace"]
    budget: Annotated[list[BudgetStep], Meta(min_length=1)]
    """Rising in days; the first one holds from day 0 and is published by whoever starts the run."""
    status_file: str
    """Replaced every second while the world runs."""
    result_file: str
    """Written once at the end."""
    seed: int = 0
    pages: Annotated[int, Meta(ge=0)] = 0
    """Size of a generated population."""
    pages_file: str | None = None
    events_file: str | None = None
    days: float | None = None
    """How long the run lasts; absent: until it is told to stop."""
    fleet: FleetPlan = FleetPlan()


def read_plan(file: Path) -> WorldPlan:
    """Read a plan.

    Raises:
        ValueError: the file is not a plan; the text says where it is wrong.
    """
    try:
        return msgspec.json.decode(file.read_bytes(), type=WorldPlan)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{file} is not a world plan: {error}") from error


def write_plan(plan: WorldPlan, file: Path) -> None:
    """Write a plan for `read_plan`."""
    file.write_bytes(msgspec.json.format(msgspec.json.encode(plan)))
