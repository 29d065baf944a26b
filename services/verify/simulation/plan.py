"""What a simulation is: how large, for how long, and which faults come when. All of it drawn from
the seed before it begins, so that a fault can be left out and the rest stays as it was."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, get_args

from services.verify.simulation.sharing import EACH_RATE

# fmt: off
Kind = Literal[
    "kill", "kill-in-commit", "term", "pause", "rebalance", "broker-down", "database-down",
    "cut-broker", "deaf", "cut-database", "clock", "duplicate", "bandwidth", "bad-message",
    "marker", "long-database-outage", "leader-lost", "overtaken", "transaction", "retention",
    "records-lost", "topic-anew", "import", "growth", "order",
]
# fmt: on

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

GROUPS: Final = ("freshet-estimator", "freshet-scheduler", "freshet-ingester")

WORKERS: Final = ("ingester", "estimator", "scheduler", "coordinator")

BREAKING: Final[frozenset[Kind]] = frozenset({"records-lost", "topic-anew"})
"""After these, workers stand still until people have looked. There is one of them at most, and
early, so that there is time for it."""

BESIDE: Final[frozenset[Kind]] = frozenset({"growth", "order"})
"""What is not drawn among the others, but comes beside them."""

BREAKS_UNTIL_SECONDS: Final = 8.0
"""Virtual seconds."""

_BEFORE_BREAK_SECONDS: Final = 3.0
_SETTLING_SECONDS: Final = 6.0
"""Around such a fault nothing else happens."""

_WITH_GROWTH: Final = 0.15
"""Part of the seeds in which the shards grow, where all kinds of faults may come."""

_GROWS_WITHIN_SECONDS: Final = 5.0
"""It begins so soon, as it takes a while, and longer where its command is killed."""

_GROWS_AGAIN: Final = 0.4
"""Part of the seeds with a growth in which another one is called for."""

_AGAIN_WITHIN_SECONDS: Final = 6.0
"""So soon after the first: mostly before that is over."""

_WITH_ORDERS: Final = 0.2
"""Part of the seeds in which operators say something of pages, hosts and the budget meanwhile."""

_ORDERS: Final = (2, 6)
"""How often, at least and at most."""

_WITH_SHARES: Final = 0.15
"""Part of the seeds in which schedulers keep parts of the slots for reasons to crawl."""

_REASON_SHARES: Final = (
    (("value", 0.5),),
    (("new", 0.2), ("max-age", 0.3), ("value", 0.3)),
    (("urgent", 0.1), ("new", 0.3), ("max-age", 0.2), ("value", 0.4)),
)

_WITH_CLASSES: Final = 0.25
"""Part of the seeds in which pages have classes."""

_CLASSES: Final = (
    (("news", 2.0, 0.0), ("partner", 1.0, 0.0)),
    (("news", 4.0, 0.0), ("archive", 0.25, 0.2)),
    (("news", 1.0, 0.3), ("partner", 1.0, 0.3)),
)

_WITH_OBJECTIVES: Final = 0.15
"""Part of the seeds in which pages are crawled for something else than freshness."""

_WITH_GROUP_LIMIT: Final = 0.25
"""Part of the seeds in which all addresses have a limit."""

_WITH_CRAWLERS_BEHIND: Final = 0.3
"""Part of the seeds in which the clocks of crawlers are behind: their crawls seem to be of before
they were asked for."""

_BEHIND_SECONDS: Final = (0.5, 4.0)

_OBJECTIVES: Final = (
    '{"default": "harmonic"}',
    '{"default": {"age": 0.3}, "host0.example": "freshness"}',
    '{"host1.example": "harmonic", "host2.example": {"age": 1.0}}',
)

LONG_OUTAGE_SECONDS: Final = 14.0
"""Longer than the (shortened) time after which a group gives up who does not poll."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that goes wrong."""

    at: float
    """Virtual seconds."""
    kind: Kind
    target: str
    """Name of a process; empty: a server, or the world."""
    seconds: float = 0.0
    """How long it lasts."""
    detail: float = 0.0
    """In [0, 1): what else there is to be decided."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How large everything is."""

    seconds: float = 32.0
    """As long as there is a budget; no fault comes in the last part of it."""
    quiet_seconds: float = 15.0
    """At the end of it, without faults."""
    rest_seconds: float = 11.0
    """After it, without a budget: the system comes to rest, though a member waits for the answer to
    its join that was lost in the last fault (`coordinator.JOIN_SECONDS`)."""
    bound_seconds: float = 12.0
    """In the last so many seconds every page is asked for once at least."""
    begin_seconds: float = 3.0
    """At the beginning, without faults."""
    faults: int = 8
    """At most."""
    partitions: int = 3
    hosts: int = 5
    pages: int = 18
    crawls_per_second: float = 4.0
    ingesters: int = 1
    estimators: int = 2
    schedulers: int = 2
    coordinators: int = 2
    kinds: tuple[Kind, ...] = KINDS
    session_seconds: float = 3.0
    poll_seconds: float = 11.0
    """After which a group gives up a member that does not poll; five minutes in production."""
    reason_shares: tuple[tuple[str, float], ...] = ()
    """Parts of the slots that schedulers keep for reasons to crawl; some seeds draw them."""
    classes: tuple[tuple[str, float, float], ...] = ()
    """Name, weight and share of classes of pages; some seeds draw them."""
    objectives: str = "{}"
    """What pages are crawled for, as the setting says it; some seeds draw it."""

    group_crawls_per_second: float | None = None
    """Of each address that has no limit of its own; some seeds draw it."""

    crawlers_behind_seconds: float = 0.0
    """The clocks of crawlers are behind by so much; some seeds draw it."""

    @property
    def has_parts(self) -> bool:
        """Whether parts of the slots are kept, for reasons or for classes."""
        return bool(self.reason_shares) or any(share > 0.0 for _, _, share in self.classes)

    def processes(self) -> list[str]:
        """Names of the workers."""
        counts = (self.ingesters, self.estimators, self.schedulers, self.coordinators)
        return [
            f"{kind}-{number}"
            for kind, count in zip(WORKERS, counts, strict=True)
            for number in range(1, count + 1)
        ]


@dataclass(frozen=True, slots=True)
class Weather:
    """How rough it is all the time. Each seed has its own: in some, rare things meet often."""

    slow_commits: float
    """Share of the commits that take up to a second and a half."""
    slow_messages: float
    """Share of the messages between a process and the broker that take up to 0.4 s."""
    slow_threads: float
    """Share of the work in threads that waits for up to 0.3 s."""
    partly: float
    """Share of the polls that hand out a part of what is there."""
    uneven: float
    """Share of the partitions that an answer to a fetch leaves out."""
    resident_pages: int = 1_000_000
    """That an estimator keeps in memory: of few, most are read again and again."""


@dataclass(frozen=True, slots=True)
class SimulationPlan:
    """A simulation."""

    seed: int
    scale: Scale
    faults: tuple[Fault, ...]
    weather: Weather

    def without(self, left_out: set[int]) -> "SimulationPlan":
        """The same without some of its faults, by their places."""
        return replace(
            self, faults=tuple(f for i, f in enumerate(self.faults) if i not in left_out)
        )


def kinds_of(text: str) -> tuple[tuple[Kind, ...], list[str]]:
    """The kinds of a list with commas between, all or none; and what is none."""
    if text in {"all", "none"}:
        return (KINDS if text == "all" else ()), []
    names = [name.strip() for name in text.split(",") if name.strip()]
    return tuple(k for k in KINDS if k in names), [name for name in names if name not in KINDS]


def draw_plan(seed: int, scale: Scale) -> SimulationPlan:
    """The plan of a seed."""
    rng = Random(f"faults {seed}")  # noqa: S311 - a simulation
    often = [kind for kind in scale.kinds if kind not in BESIDE]
    count = rng.randint(1, scale.faults) if often else 0
    # Few kinds, and each of them often: what one hole needs is seldom five different ones.
    kinds = _compatible(rng.sample(often, min(rng.randint(1, 4), len(often))))
    faults = _one_break([_draw(rng, scale, kinds) for _ in range(count)])
    faults += _growth(seed, scale, kinds) + _orders(seed, scale, kinds)
    weather = Weather(
        slow_commits=rng.choice((0.02, 0.1, 0.4)),
        slow_messages=rng.choice((0.01, 0.03, 0.1)),
        slow_threads=rng.choice((0.005, 0.02, 0.1)),
        partly=rng.choice((0.05, 0.2, 0.5)),
        uneven=rng.choice((0.0, 0.1, 0.4)),
        resident_pages=rng.choice((1_000_000, 8, 3)),
    )
    scale = _with_objectives(seed, _with_classes(seed, _with_shares(seed, scale)))
    scale = _with_crawlers_behind(seed, _with_group_limit(seed, scale))
    return SimulationPlan(seed, scale, tuple(sorted(faults, key=lambda f: f.at)), weather)


def _growth(seed: int, scale: Scale, others: Collection[Kind]) -> list[Fault]:
    """In some seeds, the shards grow, once or twice; in all of them where that is asked for by
    name. Not where people must settle something else."""
    rng = Random(f"growth {seed}")  # noqa: S311 - a simulation
    is_drawn = rng.random() < _WITH_GROWTH or scale.kinds != KINDS
    if "growth" not in scale.kinds or not is_drawn or BREAKING & set(others):
        return []
    at = scale.begin_seconds + _GROWS_WITHIN_SECONDS * rng.random()
    growths = [Fault(round(at, 3), "growth", "", detail=rng.random())]
    if rng.random() < _GROWS_AGAIN:
        again = at + _AGAIN_WITHIN_SECONDS * rng.random()
        growths.append(Fault(round(again, 3), "growth", "", detail=rng.random()))
    return growths


def _orders(seed: int, scale: Scale, others: Collection[Kind]) -> list[Fault]:
    """In some seeds, and in all where few other kinds may come, what operators say. Not where they
    must settle something else."""
    rng = Random(f"orders {seed}")  # noqa: S311 - a simulation
    is_drawn = rng.random() < _WITH_ORDERS or len(scale.kinds) < len(KINDS) // 2
    if "order" not in scale.kinds or not is_drawn or BREAKING & set(others):
        return []
    until = scale.seconds - scale.quiet_seconds
    times = [
        round(rng.uniform(scale.begin_seconds, until), 3) for _ in range(rng.randint(*_ORDERS))
    ]
    return [Fault(at, "order", "", detail=rng.random()) for at in times]


def _with_shares(seed: int, scale: Scale) -> Scale:
    """In some seeds, parts of the slots are kept for reasons to crawl."""
    rng = Random(f"shares {seed}")  # noqa: S311 - a simulation
    if scale.reason_shares or rng.random() >= _WITH_SHARES:
        return scale
    return replace(scale, reason_shares=rng.choice(_REASON_SHARES))


def _with_classes(seed: int, scale: Scale) -> Scale:
    """In some seeds, pages have classes, of which some have weights or shares."""
    rng = Random(f"classes {seed}")  # noqa: S311 - a simulation
    if scale.classes or rng.random() >= _WITH_CLASSES:
        return scale
    return replace(scale, classes=rng.choice(_CLASSES))


def _with_crawlers_behind(seed: int, scale: Scale) -> Scale:
    rng = Random(f"crawlers' clocks {seed}")  # noqa: S311 - a simulation
    if rng.random() >= _WITH_CRAWLERS_BEHIND:
        return scale
    return replace(scale, crawlers_behind_seconds=round(rng.uniform(*_BEHIND_SECONDS), 3))


def _with_group_limit(seed: int, scale: Scale) -> Scale:
    """In some seeds, every address has a limit."""
    rng = Random(f"addresses {seed}")  # noqa: S311 - a simulation
    if scale.group_crawls_per_second is not None or rng.random() >= _WITH_GROUP_LIMIT:
        return scale
    return replace(scale, group_crawls_per_second=EACH_RATE)


def _with_objectives(seed: int, scale: Scale) -> Scale:
    """In some seeds, pages are crawled for something else than freshness."""
    rng = Random(f"objectives {seed}")  # noqa: S311 - a simulation
    if scale.objectives != "{}" or rng.random() >= _WITH_OBJECTIVES:
        return scale
    return replace(scale, objectives=rng.choice(_OBJECTIVES))


def _compatible(kinds: Sequence[Kind]) -> Sequence[Kind]:
    """Where people must settle something: without what keeps them from it, and what else takes
    records away."""
    breaks = any(kind in BREAKING for kind in kinds)
    out = ("long-database-outage", "retention")
    return [kind for kind in kinds if not (breaks and kind in out)]


def _one_break(faults: Sequence[Fault]) -> list[Fault]:
    """With one fault that people must settle, and nothing else while they do: a worker that begins
    in the middle of it stops once more, and would have to be looked at once more."""
    breaks = [fault for fault in faults if fault.kind in BREAKING]
    if not breaks:
        return list(faults)
    begin, end = breaks[0].at - _BEFORE_BREAK_SECONDS, breaks[0].at + _SETTLING_SECONDS
    calm = (
        f for f in faults if f.kind not in BREAKING and (f.at > end or f.at + f.seconds < begin)
    )
    return [breaks[0], *calm]


def _draw(rng: Random, scale: Scale, kinds: Sequence[Kind]) -> Fault:
    kind = rng.choice(kinds)
    at = round(rng.uniform(scale.begin_seconds, scale.seconds - scale.quiet_seconds), 3)
    processes = scale.processes()
    detail = rng.random()
    left = scale.seconds - scale.quiet_seconds - at
    if kind in ("kill", "term", "kill-in-commit"):
        names = [n for n in processes if kind in ("kill", "term") or n.startswith("estimator")]
        return Fault(at, kind, rng.choice(names), round(rng.uniform(0.5, 5.0), 2), detail)
    if kind in ("pause", "cut-broker", "deaf", "cut-database"):
        seconds = round(rng.choice((0.3, 1.5, 3.5, 5.0)) * rng.uniform(0.6, 1.4), 2)
        return Fault(at, kind, rng.choice(processes), seconds, detail)
    if kind in ("broker-down", "database-down"):
        return Fault(at, kind, "", round(rng.choice((0.5, 2.0, 4.0)) * rng.uniform(0.6, 1.4), 2))
    if kind == "long-database-outage":
        begin = min(at, max(scale.begin_seconds, at + left - LONG_OUTAGE_SECONDS))
        return Fault(round(begin, 3), kind, "", LONG_OUTAGE_SECONDS)
    if kind in BREAKING:
        at = round(rng.uniform(BREAKS_UNTIL_SECONDS - 3.0, BREAKS_UNTIL_SECONDS), 3)
    targets = {
        "rebalance": GROUPS,
        "clock": processes,
        "overtaken": [name for name in processes if name.startswith("estimator")],
    }
    seconds = round(rng.uniform(*_SECONDS[kind]), 2) if kind in _SECONDS else 0.0
    return Fault(at, kind, rng.choice(targets.get(kind, ("",))), seconds, detail)


_SECONDS: Final[dict[Kind, tuple[float, float]]] = {
    "leader-lost": (0.5, 4.0),
    "transaction": (0.5, 4.0),
    "retention": (2.5, 4.5),
    "import": (2.5, 4.5),
}
"""How long some faults last, at least and at most."""
