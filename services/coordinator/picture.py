"""The picture of the system: `/state.json`, and the page that draws it."""

import math
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple

import faust
import msgspec
from aiohttp.web import Response

from services.coordinator import metrics
from services.coordinator.allotment import Fleet, Shard
from services.coordinator.core import Coordination, Moment
from services.coordinator.shards_there import ShardsThere
from services.coordinator.solver import demand_at
from services.coordinator.web import files
from shared.contracts.reported import ClassCrawls
from shared.runtime.kept_answer import KeptAnswer

HISTORY_SECONDS = 600
"""Samples kept, one a second."""

HEADERS = {
    # The page loads nothing from anywhere else, and asks only this machine (`?world=`).
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src data:; connect-src 'self' http://127.0.0.1:* http://localhost:*",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


class Achieved(NamedTuple):
    """What the shards make of the budget."""

    rate: float
    """Crawls per second of the clock, as they reported last."""
    ratio: float
    """Crawls of the last seconds to the slots of the budget in that time; 1 where there were none.
    What silent shards had counts as missing."""


class Sample(msgspec.Struct, frozen=True):
    """How the system stood at a moment. Rates are crawls per second of the clock."""

    at: float
    """Unix seconds of the wall."""
    clock: float
    bandwidth: float
    achieved: float
    achieved_ratio: float
    """Crawls to slots, in the last seconds."""
    multiplier: float
    host_limited: float
    fleet_held: float
    """Part of the slots that wait because the crawlers are behind."""
    fleet_capacity: float | None
    """What the crawlers are seen to answer while they are behind; None: they keep up."""
    unused: float = 0.0
    """What is left of the budget, as no page is to be crawled."""


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
    ratio: float = 1.0
    """Crawls to slots, in the last seconds."""
    usable: float | None = None
    """Crawls per second of the clock that it was seen to be able to use; None: all it was given."""


class GroupState(msgspec.Struct, frozen=True):
    """A row of the table of groups of hosts that have limits."""

    group: str
    crawls_per_second: float
    shards: int
    """That share it."""
    pages: int


class DefaultGroupState(msgspec.Struct, frozen=True):
    """The limit of all groups that outcomes name and operators do not limit."""

    crawls_per_second: float
    divided: int
    """Groups of which shards have parts by their pages; of all others they have equal ones."""


class ReasonState(msgspec.Struct, frozen=True):
    """What is asked for, for one reason."""

    reason: str
    crawls_per_second: float
    kept: float
    """Part of the slots that is kept for it; 0: none is."""


class ClassState(msgspec.Struct, frozen=True):
    """A class of pages of which operators say something, or all others."""

    page_class: str
    """Empty: all others."""
    pages: int
    crawls_per_second: float
    kept: float
    """Part of the slots that is kept for it; 0: none is."""
    weight: float


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
    why: str
    leads: bool
    """Whether the coordinator that answers is the one that decides."""
    leader: str
    """Name of the one that does, as far as is known."""
    epoch: int
    scheduled: bool
    """Whether the bandwidth follows a schedule."""
    next_change_at: float | None
    """When the schedule changes it next, clock time."""
    shards: list[ShardState]
    groups: list[GroupState]
    default_groups: DefaultGroupState | None
    reasons: list[ReasonState]
    classes: list[ClassState]
    history: list[Sample]


class Picture:
    """Samples the coordination once a second and remembers ten minutes of it."""

    def __init__(
        self, coordination: Coordination, is_broker_away: Callable[[], bool] = lambda: False
    ) -> None:
        """Begin with nothing.

        Args:
            coordination: that is shown.
            is_broker_away: as this process sees it (`shared.runtime.broker_watch`).
        """
        self._coordination, self._is_broker_away = coordination, is_broker_away
        self.there = ShardsThere()
        self._history: deque[Sample] = deque(maxlen=HISTORY_SECONDS)

    def sample(self, now: Moment, at: float) -> None:
        """Take a sample; `at` is Unix seconds of the wall."""
        sample = self._now(now, at)
        self._history.append(sample)
        fleet = self._coordination.fleet
        live = fleet.live(now.wall)
        last = self._coordination.last
        # Whoever follows tells of the leader's: what was its own once is out of date.
        metrics.MULTIPLIER.set(sample.multiplier)
        metrics.VERSION.set(last.version if last is not None else 0)
        metrics.BANDWIDTH.set(sample.bandwidth)
        metrics.ACHIEVED.set(sample.achieved)
        metrics.ACHIEVED_RATIO.set(sample.achieved_ratio)
        metrics.LIMITED_SHARDS.set(sum(s.usage.usable < math.inf for s in fleet.shards.values()))
        metrics.HOST_LIMITED.set(sample.host_limited)
        metrics.FLEET_HELD.set(sample.fleet_held)
        metrics.UNUSED.set(sample.unused)
        crawlers = fleet.crawlers(now.wall)
        metrics.FLEET_ANSWERS.set(crawlers.answers / now.speed)
        metrics.LIVE_SHARDS.set(len(live))
        metrics.SILENT_SHARDS.set(len(self.there.silent(fleet.shards, live)))

    def state(self, now: Moment, at: float, leader: str) -> State:
        """Everything that the page shows.

        Args:
            now: the time.
            at: Unix seconds of the wall.
            leader: who leads, as the lease says; empty: it does not say.
        """
        fleet, last = self._coordination.fleet, self._coordination.last
        budget = self._coordination.budget
        change = budget.next_change(now.clock) if budget is not None else math.inf
        live = fleet.live(now.wall)
        silent = self.there.silent(fleet.shards, live)
        rows = [self._row(number, now, silent=number in silent) for number in live | silent]
        return State(
            notice=self.notice(now),
            speed=now.speed,
            now=self._now(now, at),
            live_shards=len(live),
            silent_shards=len(silent),
            pages=sum(row.pages for row in rows),
            version=last.version if last else 0,
            cause=last.cause if last else "",
            why=last.why if last else "",
            leads=bool(self._coordination.epoch),
            leader=leader or (last.leader if last else ""),
            epoch=max(self._coordination.epoch, last.epoch if last else 0),
            scheduled=budget is not None and bool(budget.schedule),
            next_change_at=change if math.isfinite(change) else None,
            shards=sorted(rows, key=lambda row: row.shard),
            groups=self._groups(live),
            default_groups=self._default_groups(),
            reasons=self._reasons(live),
            classes=self._classes(live),
            history=list(self._history),
        )

    def notice(self, now: Moment) -> str | None:
        """What keeps the system from crawling, or is about to."""
        if self._is_broker_away():
            # First: without one nothing is heard, whatever runs.
            return "the broker cannot be reached: nothing is crawled or heard of until it can"
        if self._coordination.budget is None:
            budget = self._coordination.rate(now.clock)
            going_on = f"going on with {budget:g} crawls/s" if budget else "nothing is crawled"
            return f"no bandwidth is set, {going_on}: set it with `freshet bandwidth set`"
        if not self._coordination.fleet.live(now.wall):
            return "no shard reports: are the schedulers running?"
        if left_out := self._coordination.groups.left_out:
            return (
                f"so many shards leave room for fewer groups: the limits of {len(left_out)} do not "
                f"hold, of {left_out[0]} for one: take some back with `freshet groups unlimit`"
            )
        crawlers = self._coordination.fleet.crawlers(now.wall)
        if crawlers.held_share > 0:
            answers = round(crawlers.answers / now.speed, 3)
            return (
                f"the crawlers are behind: they answer {answers:.6g} crawls/s, and "
                f"{crawlers.held_share:.0%} of the slots wait for them: add crawlers"
            )
        return None

    def achieved(self, now: Moment) -> Achieved:
        """How much of the budget is used."""
        fleet = self._coordination.fleet
        live = [fleet.shards[number] for number in fleet.live(now.wall)]
        reported = sum(s.curve.achieved_crawls_per_second for s in live if s.curve is not None)
        slots = sum(s.usage.slots_rate for s in live)
        crawls = sum(s.usage.crawls_rate for s in live)
        theirs = 1.0
        if fleet.last is not None and any(fleet.last.shares.values()):
            heard = fleet.live(now.wall)
            theirs = sum(share for number, share in fleet.last.shares.items() if number in heard)
        if not slots > 0:
            is_none_heard = theirs == 0.0 and self._coordination.rate(now.clock) > 0
            return Achieved(reported, 0.0 if is_none_heard else 1.0)
        return Achieved(reported, crawls / slots * min(theirs, 1.0))

    def _groups(self, live: frozenset[int]) -> list[GroupState]:
        """Those that have limits, and what the shards report of them."""
        last, shards = self._coordination.last, self._coordination.fleet.shards
        curves = [curve for n in live if (curve := shards[n].curve) is not None]
        pages = Counter[str]()
        for of in (of for curve in curves for of in curve.groups):
            pages[of.group] += of.pages
        return [
            GroupState(g.group, g.crawls_per_second, len(g.allotments), pages[g.group])
            for g in (last.groups if last else ())
        ]

    def _default_groups(self) -> DefaultGroupState | None:
        """The limit of all others, if there is one."""
        last = self._coordination.last
        limit = last.default_groups if last is not None else None
        if limit is None:
            return None
        divided = sum(1 for of in limit.divided if of.shards)
        return DefaultGroupState(limit.crawls_per_second, divided)

    def _reasons(self, live: frozenset[int]) -> list[ReasonState]:
        """What the shards report of late, the most frequent first."""
        shards = self._coordination.fleet.shards
        reported = [of for n in live if (curve := shards[n].curve) for of in curve.reasons]
        rates = {of.reason: 0.0 for of in reported}
        kept = dict(rates)
        for of in reported:
            rates[of.reason] += of.crawls_per_second
            kept[of.reason] = max(kept[of.reason], of.share)
        by_rate = sorted(rates, key=lambda reason: -rates[reason])
        return [ReasonState(reason, rates[reason], kept[reason]) for reason in by_rate]

    def _classes(self, live: frozenset[int]) -> list[ClassState]:
        """What the shards report of late, in the order of the first that does."""
        shards = self._coordination.fleet.shards
        found: dict[str, list[ClassCrawls]] = {}
        for of in (of for n in sorted(live) if (c := shards[n].curve) for of in c.classes):
            found.setdefault(of.page_class, []).append(of)
        return [
            ClassState(
                name,
                sum(of.pages for of in parts),
                sum(of.crawls_per_second for of in parts),
                max(of.share for of in parts),
                max(of.weight for of in parts),
            )
            for name, parts in found.items()
        ]

    def _row(self, number: int, now: Moment, *, silent: bool) -> ShardState:
        fleet = self._coordination.fleet
        shard = fleet.shards.get(number, Shard(self.there.known_since))
        share = fleet.last.shares.get(number, 0.0) if fleet.last else 0.0
        since = round(now.wall - shard.heard_at, 1)
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
            shard.usage.ratio,
            shard.usage.usable / now.speed if math.isfinite(shard.usage.usable) else None,
        )

    def _now(self, now: Moment, at: float) -> Sample:
        fleet = self._coordination.fleet
        multiplier = fleet.last.multiplier if fleet.last else 0.0
        achieved = self.achieved(now)
        crawlers = fleet.crawlers(now.wall)
        return Sample(
            at=at,
            clock=now.clock,
            bandwidth=self._coordination.rate(now.clock),
            achieved=achieved.rate,
            achieved_ratio=achieved.ratio,
            multiplier=multiplier,
            host_limited=_host_limited(fleet, now.wall, multiplier),
            fleet_held=crawlers.held_share,
            fleet_capacity=crawlers.answers / now.speed if crawlers.held_share > 0 else None,
            unused=sum(fleet.shards[n].usage.unused_rate for n in fleet.live(now.wall)) / now.speed,
        )


def _host_limited(fleet: Fleet, wall: float, multiplier: float) -> float:
    """Share of all demand at λ₀ that host limits hold back.

    A shard's curve is what its hosts let through, 1 − h of what its pages ask for.
    """
    curves = fleet.curves(wall)
    if curves is None:
        return 0.0
    through = demand_at(curves, multiplier)
    reports = [fleet.shards[shard].curve for shard in curves.shards]
    held = [min(r.host_limited_share, 0.999) if r is not None else 0.0 for r in reports]
    asked = [d / (1.0 - h) for d, h in zip(through, held, strict=True)]
    total = sum(asked)
    return float(1.0 - sum(through) / total) if total > 0 else 0.0


def add_picture(app: faust.App, state: Callable[[], State]) -> None:
    """Serve the page and its data from the worker's HTTP server."""

    async def make() -> bytes:
        return msgspec.json.encode(state())

    kept = KeptAnswer(make)

    @app.page("/state.json")  # type: ignore[untyped-decorator]
    async def state_json(_web: Any, _request: Any) -> Response:
        return Response(body=await kept.body(), content_type="application/json", headers=HEADERS)

    for path, (text, content_type) in files().items():
        _add_file(app, path, text.encode(), content_type)


def _add_file(app: faust.App, path: str, body: bytes, content_type: str) -> None:
    @app.page(path, name=f"picture:{path}")  # type: ignore[untyped-decorator]
    async def page(_web: Any, _request: Any) -> Response:
        return Response(body=body, content_type=content_type, charset="utf-8", headers=HEADERS)
