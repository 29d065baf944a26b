"""What a hostile ping producer costs: freshness of other pages, and crawls that it draws."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from services.bench.small_system import Arrival, SmallSystem
from services.replay.books import IDLE, settle
from services.replay.generated import make_trace
from services.replay.slots import Budget
from services.replay.trace import Trace
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlOutcome, Signal
from shared.policy.model import PageParameters
from shared.runtime.settings import Settings, load_settings
from shared.units import SECONDS_PER_DAY as DAY

_ORIGIN = 1_700_000_000.0
_STEPS_PER_DAY = 24
_PAGES_PER_HOST = 40
_CRAWLS_PER_PAGE_AND_DAY = 0.25
_HONEST = "sitemaps"
_LIMIT_TIMES_HONEST = 20.0
"""The limit of a source, in honest signals of all pages: a real limit leaves as much room."""

_FLOOD_TIMES_LIMIT = 100.0
_VICTIMS = 0.05
"""Share of pages that a targeted attack is about."""

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Make = Callable[["Attacker", float, int], list[bytes]]


@dataclass(frozen=True, slots=True)
class Attacker:
    """What an attacker has to work with."""

    urls: Sequence[str]
    victims: Integers
    """Rows of the pages that it is about."""
    rng: np.random.Generator

    def pages(self, count: int) -> Iterator[tuple[int, str]]:
        """Some of the pages at random, numbered."""
        rows = self.victims[self.rng.integers(0, self.victims.size, count)]
        return ((n, self.urls[row]) for n, row in enumerate(rows.tolist()))


def _one_source(attacker: Attacker, now: float, count: int) -> list[bytes]:
    return [encode(Signal(url, "pinger", now)) for _, url in attacker.pages(count)]


def _made_up_sources(attacker: Attacker, now: float, count: int) -> list[bytes]:
    return [encode(Signal(url, f"pinger-{now:.0f}-{n}", now)) for n, url in attacker.pages(count)]


def _liar(attacker: Attacker, now: float, count: int) -> list[bytes]:
    """Times of next year, of five minutes hence, of last week bit by bit, and no numbers."""
    values = []
    for n, url in attacker.pages(count):
        bit_by_bit = -6.9 * DAY + 100.0 * (n % 5000)
        said = now + (3e7, 290.0, bit_by_bit, -9.0 * DAY)[n % 4]
        value = encode(Signal(url, "pinger", said))
        values.append(value.replace(b"%d" % int(said), b"NaN") if n % 97 == 0 else value)
    return values


@dataclass(frozen=True, slots=True)
class Attack:
    """One way of doing harm."""

    make: Make
    times_limit: float
    """Signals, in what one source is allowed."""
    targeted: bool
    lasts: bool = True
    """Whether it goes on to the end; a flood is millions of signals, and takes `flood_days`."""


ATTACKS: dict[str, Attack] = {
    "random-pages": Attack(_one_source, 1.0, targeted=False),
    "other-hosts": Attack(_one_source, 1.0, targeted=True),
    "lying-times": Attack(_liar, 2.0, targeted=True),
    "made-up-sources": Attack(_made_up_sources, 4.0, targeted=True),
    "flood": Attack(_one_source, _FLOOD_TIMES_LIMIT, targeted=False, lasts=False),
}


def run(
    pages: int = 1000,
    days: float = 90.0,
    seed: int = 1,
    attack: str = "all",
    begin: float = 30.0,
    flood_days: float = 2.0,
    named: bool = True,
) -> list[dict[str, Any]]:
    """Measure every attack against the same pages without one, through the workers' own code.

    Args:
        pages: of hosts of forty pages each.
        days: of the whole; everything is learned online.
        seed: of pages, events and attackers.
        attack: one of `ATTACKS`, or all.
        begin: day at which the attack begins; what comes after it is measured.
        flood_days: how long a flood lasts.
        named: whether the honest source is named in `signal_sources`; if not, nothing tells it
            from the attacker but its record.

    Returns:
        an attack a row: `freshness` of the pages that are not attacked (of all, where all are),
        `freshness_lost`: the share of it that the attack costs; `crawls_of_attacked` pages beside
        `crawls_without`; `signals` that the attacker sent, and how many were `accepted`.
    """
    scene = _Scene.make(pages, days, seed, begin, flood_days, named=named)
    names = list(ATTACKS) if attack == "all" else [attack]
    unknown = [name for name in names if name not in ATTACKS]
    if unknown:
        raise ValueError(f"there is no attack {unknown[0]!r}; there are {', '.join(ATTACKS)}")
    peace = _replay(scene, None)
    return [_row(name, scene, peace, _replay(scene, ATTACKS[name])) for name in names]


@dataclass(frozen=True, slots=True)
class _Scene:
    trace: Trace
    urls: list[str]
    victims: Integers
    slots: Floats
    """Days."""
    changes: list[Floats]
    """Days at which each page changes."""
    limit: float
    """Signals that a source may send in a second."""
    seed: int
    begin: float
    """Day at which attacks begin."""
    flood_days: float
    named: bool

    @classmethod
    def make(
        cls, pages: int, days: float, seed: int, begin: float, flood_days: float, *, named: bool
    ) -> "_Scene":
        rng = np.random.default_rng(seed)
        rates = np.clip(rng.lognormal(np.log(0.1), 1.0, pages), 0.005, 3.0)
        recall = rng.beta(8.0, 2.0, pages)
        parameters = PageParameters.from_rates(
            rng.lognormal(0.0, 1.0, pages), rates, recall, 0.1 * rates
        )
        trace = make_trace(parameters, days, rng)
        order = np.argsort(trace.change_pages, kind="stable")
        ends = np.cumsum(np.bincount(trace.change_pages, minlength=pages))
        per_second = trace.signal_days.size / days / DAY
        return cls(
            trace,
            [f"https://host-{n // _PAGES_PER_HOST}.example/page/{n}" for n in range(pages)],
            np.flatnonzero(rng.random(pages) < _VICTIMS),
            Budget.constant(_CRAWLS_PER_PAGE_AND_DAY * pages).slot_times(days),
            np.split(trace.change_days[order], ends[:-1]),
            _LIMIT_TIMES_HONEST * per_second,
            seed,
            begin,
            flood_days,
            named,
        )

    def settings(self) -> Settings:
        return load_settings(
            partitions=1,
            signals_per_source_per_second=self.limit,
            signals_from_others_per_second=2.0 * self.limit,
            signal_sources=(_HONEST,) if self.named else (),
            # Crawls are answered at the end of their step.
            request_timeout_seconds=2.0 * DAY / _STEPS_PER_DAY,
        )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What came of a replay, from the attack's beginning on; columns have one row a page."""

    stale_days: Floats
    crawls: Integers
    sent: int = 0
    accepted: int = 0


def _replay(scene: _Scene, attack: Attack | None) -> _Outcome:
    trace, rows = scene.trace, {url: row for row, url in enumerate(scene.urls)}
    rate = _CRAWLS_PER_PAGE_AND_DAY * len(trace) / DAY
    system = SmallSystem(scene.settings(), scene.urls, trace.importance, rate, _ORIGIN)
    crawled = np.full(scene.slots.size, IDLE, np.int64)
    last = np.zeros(len(trace))
    sent = accepted = 0
    for step in range(round(trace.days * _STEPS_PER_DAY)):
        begin, end = step / _STEPS_PER_DAY, (step + 1) / _STEPS_PER_DAY
        system.advance(_ORIGIN + end * DAY)
        hostile = _hostile(scene, attack, begin, end)
        arrivals = _honest(scene, begin, end) + hostile
        heard = system.hear(sorted(arrivals, key=lambda arrival: arrival.timestamp))
        sent += len(hostile)
        accepted += sum(signal.source != _HONEST for signal in heard)
        chosen = np.flatnonzero((scene.slots > begin) & (scene.slots <= end))
        picked = system.pick(_ORIGIN + scene.slots[chosen] * DAY)
        outcomes = []
        for slot, url in zip(chosen.tolist(), picked, strict=True):
            if url:
                row, day = rows[url], float(scene.slots[slot])
                crawled[slot] = row
                outcomes.append(_crawl(scene, row, url, last[row], day))
                last[row] = day
        system.answer(outcomes)
    stale, crawls = _since(scene, crawled)
    return _Outcome(stale, crawls, sent, accepted)


def _since(scene: _Scene, crawled: Integers) -> tuple[Floats, Integers]:
    """Stale days and crawls of each page since the attack began."""
    whole = settle(scene.trace, scene.slots, crawled)
    until = int(np.searchsorted(scene.slots, scene.begin, side="right"))
    before = settle(scene.trace.until(scene.begin), scene.slots[:until], crawled[:until])
    return whole.stale_days - before.stale_days, whole.crawls - before.crawls


def _crawl(scene: _Scene, row: int, url: str, since: float, day: float) -> CrawlOutcome:
    changes = scene.changes[row]
    seen = np.searchsorted(changes, day, side="right")
    changed = seen > np.searchsorted(changes, since, side="right")
    result = "changed" if changed else "unchanged"
    return CrawlOutcome(url, _ORIGIN + day * DAY, result=result)  # type: ignore[arg-type]


def _honest(scene: _Scene, begin: float, end: float) -> list[Arrival]:
    trace = scene.trace
    first, stop = np.searchsorted(trace.signal_days, [begin, end], side="left")
    arrivals = []
    for index in range(first, stop):
        at = _ORIGIN + float(trace.signal_days[index]) * DAY
        url = scene.urls[trace.signal_pages[index]]
        arrivals.append(Arrival(encode(Signal(url, _HONEST, at)), int(at * 1000)))
    return arrivals


def _hostile(scene: _Scene, attack: Attack | None, begin: float, end: float) -> list[Arrival]:
    if attack is None or begin < scene.begin:
        return []
    if not attack.lasts and begin >= scene.begin + scene.flood_days:
        return []
    rng = np.random.default_rng([scene.seed, int(begin * 1e6)])
    count = int(attack.times_limit * scene.limit * (end - begin) * DAY)
    victims = scene.victims if attack.targeted else np.arange(len(scene.urls))
    now = _ORIGIN + begin * DAY
    values = attack.make(Attacker(scene.urls, victims, rng), now, count)
    times = np.sort(rng.random(count)) * (end - begin) * DAY + now
    return [
        Arrival(value, int(at * 1000)) for value, at in zip(values, times.tolist(), strict=True)
    ]


def _row(name: str, scene: _Scene, peace: _Outcome, war: _Outcome) -> dict[str, Any]:
    targeted = ATTACKS[name].targeted
    attacked = np.zeros(len(scene.trace), np.bool_)
    attacked[scene.victims if targeted else np.arange(attacked.size)] = True
    others = ~attacked if targeted else attacked
    before, after = _freshness(scene, peace, others), _freshness(scene, war, others)
    return {
        "attack": name,
        "freshness_without": round(before, 5),
        "freshness": round(after, 5),
        "freshness_lost": round(1.0 - after / before, 5),
        "crawls_without": int(peace.crawls[attacked].sum()),
        "crawls_of_attacked": int(war.crawls[attacked].sum()),
        "signals": war.sent,
        "accepted": war.accepted,
    }


def _freshness(scene: _Scene, outcome: _Outcome, of: NDArray[np.bool_]) -> float:
    weight = scene.trace.importance * of
    days = scene.trace.days - scene.begin
    return float(1.0 - (weight * outcome.stale_days).sum() / (weight.sum() * days))
