"""The picture of the system: `/state.json`, and the page that draws it."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faust
import msgspec
from aiohttp.web import Response

from services.coordinator import metrics
from services.coordinator.core import Coordination, Moment
from services.coordinator.solver import demand_at, gather
from shared.contracts.messages import DemandCurve, Multipliers

HISTORY_SECONDS = 600
"""Samples kept, one a second."""

WEB = Path(__file__).parent / "web"

_FILES = {
    "/": ("index.html", "text/html"),
    "/picture.js": ("picture.js", "text/javascript"),
    "/chart.js": ("chart.js", "text/javascript"),
    "/style.css": ("style.css", "text/css"),
}

_HEADERS = {
    # The page loads nothing from anywhere else, and asks only this machine (`?world=`).
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self' http://127.0.0.1:* http://localhost:*",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Sample(msgspec.Struct, frozen=True):
    """How the system stood at a moment. Rates are crawls per second of the clock."""

    at: float
    """Unix seconds of the wall."""
    clock: float
    bandwidth: float
    achieved: float
    multiplier: float
    host_limited: float


class ShardState(msgspec.Struct, frozen=True):
    """A row of the table of shards."""

    shard: int
    share: float
    silent: bool
    seconds_since_report: float
    """Of the wall."""
    instance: str = ""
    pages: int = 0
    achieved: float = 0.0
    host_limited: float = 0.0


class State(msgspec.Struct, frozen=True):
    """`/state.json`."""

    notice: str | None
    """What an operator should know, if anything."""
    speed: float
    """Clock seconds in a second of the wall."""
    now: Sample
    live_shards: int
    silent_shards: int
    pages: int
    version: int
    cause: str
    shards: list[ShardState]
    history: list[Sample]


class Picture:
    """Samples the coordination once a second and remembers ten minutes of it."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._history: deque[Sample] = deque(maxlen=HISTORY_SECONDS)

    def sample(self, now: Moment, at: float) -> None:
        """Take a sample; `at` is Unix seconds of the wall."""
        sample = self._now(now, at)
        self._history.append(sample)
        live = len(self._coordination.fleet.live(now.wall))
        metrics.BANDWIDTH.set(sample.bandwidth)
        metrics.ACHIEVED.set(sample.achieved)
        metrics.HOST_LIMITED.set(sample.host_limited)
        metrics.LIVE_SHARDS.set(live)
        metrics.SILENT_SHARDS.set(len(self._coordination.fleet.shards) - live)

    def state(self, now: Moment, at: float, last: Multipliers | None) -> State:
        """Everything that the page shows."""
        fleet = self._coordination.fleet
        live = fleet.live(now.wall)
        rows = [self._row(number, now.wall, silent=number not in live) for number in fleet.shards]
        return State(
            notice=self.notice(now),
            speed=now.speed,
            now=self._now(now, at),
            live_shards=len(live),
            silent_shards=len(fleet.shards) - len(live),
            pages=sum(row.pages for row in rows),
            version=last.version if last else 0,
            cause=last.cause if last else "",
            shards=sorted(rows, key=lambda row: row.shard),
            history=list(self._history),
        )

    def notice(self, now: Moment) -> str | None:
        """What keeps the system from crawling, or is about to."""
        if self._coordination.bandwidth is None:
            budget = self._coordination.budget
            going_on = f"going on with {budget:g} crawls/s" if budget else "nothing is crawled"
            return f"no bandwidth is set, {going_on}: set it with `freshet bandwidth set`"
        if not self._coordination.fleet.live(now.wall):
            return "no shard reports: are the schedulers running?"
        return None

    def _row(self, number: int, wall: float, *, silent: bool) -> ShardState:
        fleet = self._coordination.fleet
        shard = fleet.shards[number]
        share = fleet.last.shares.get(number, 0.0) if fleet.last else 0.0
        since = round(wall - shard.heard_at, 1)
        curve = shard.curve
        if curve is None:
            return ShardState(number, share, silent, since)
        return ShardState(
            number,
            share,
            silent,
            since,
            curve.instance,
            curve.pages,
            0.0 if silent else curve.achieved_crawls_per_second,
            curve.host_limited_share,
        )

    def _now(self, now: Moment, at: float) -> Sample:
        fleet = self._coordination.fleet
        multiplier = fleet.last.multiplier if fleet.last else 0.0
        curves: dict[int, DemandCurve] = {}
        for number in fleet.live(now.wall):
            curve = fleet.shards[number].curve
            if curve is not None:
                curves[number] = curve
        return Sample(
            at=at,
            clock=now.clock,
            bandwidth=self._coordination.budget,
            achieved=sum(c.achieved_crawls_per_second for c in curves.values()),
            multiplier=multiplier,
            host_limited=_host_limited(curves, multiplier),
        )


def _host_limited(curves: dict[int, DemandCurve], multiplier: float) -> float:
    """Share of all demand at λ₀ that host limits hold back.

    A shard's curve is what its hosts let through, 1 − h of what its pages ask for.
    """
    if not curves:
        return 0.0
    gathered = gather(curves)
    through = demand_at(gathered, multiplier)
    held = [min(curves[shard].host_limited_share, 0.999) for shard in gathered.shards]
    asked = [d / (1.0 - h) for d, h in zip(through, held, strict=True)]
    total = sum(asked)
    return float(1.0 - sum(through) / total) if total > 0 else 0.0


def add_picture(app: faust.App, state: Callable[[], State]) -> None:
    """Serve the page and its data from the worker's HTTP server."""

    @app.page("/state.json")  # type: ignore[untyped-decorator]
    async def state_json(_web: Any, _request: Any) -> Response:
        body = msgspec.json.encode(state())
        return Response(body=body, content_type="application/json", headers=_HEADERS)

    for path, (name, content_type) in _FILES.items():
        _add_file(app, path, (WEB / name).read_bytes(), content_type)


def _add_file(app: faust.App, path: str, body: bytes, content_type: str) -> None:
    @app.page(path, name=f"picture:{path}")  # type: ignore[untyped-decorator]
    async def page(_web: Any, _request: Any) -> Response:
        return Response(body=body, content_type=content_type, charset="utf-8", headers=_HEADERS)
