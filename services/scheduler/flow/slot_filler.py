"""What is asked for with the slots that have come."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from services.scheduler import metrics
from services.scheduler.flow.in_flight import FleetWindow
from services.scheduler.flow.requests import crawls_of, write_requests
from services.scheduler.flow.traces import PageTraces
from services.scheduler.state.report_notes import REASONS
from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.pacing.groups import NO_LIMITS, Limits
from shared.pacing.slots import NOBODY, SlotPlan
from shared.runtime.clock import Clock
from shared.runtime.settings import Settings
from shared.runtime.tracing import Span
from shared.store.class_numbers import MOST_CLASSES


@dataclass(frozen=True, slots=True)
class Emission:
    """What a shard asks for in one tick."""

    shard: Shard
    picks: Rows
    """Of `picking.asked.ASKED`."""
    messages: list[tuple[bytes, bytes]]
    """Key and value."""
    spans: Mapping[int, Span] = field(default_factory=dict)
    """Of those that are traced, by their places among the messages."""
    classes: NDArray[np.int16] = field(default_factory=lambda: np.zeros(0, np.int16))
    """Of their pages, by number; empty: operators say nothing of classes."""
    named: Mapping[str, list[int]] = field(default_factory=dict)
    """As `ShardClasses.named`, when they were made."""

    def by_tier(self, first: int | None = None) -> NDArray[np.int64]:
        """How many are of each tier, of all or of the first so many."""
        return np.bincount(self.picks["tier"][:first], minlength=len(REASONS))

    def by_class(self, first: int | None = None) -> NDArray[np.int64]:
        """How many are of each class, of all or of the first so many, as far as that is known."""
        return np.bincount(self.classes[:first], minlength=MOST_CLASSES + 1)


class SlotFiller:
    """Fills slots with pages, and writes the requests. Runs in the shards' thread."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        shards: Mapping[int, Shard],
        traces: PageTraces | None = None,
    ) -> None:
        self._shards = shards
        self.traces = traces
        """None: they are off."""
        self._work_conserving = settings.work_conserving
        timeout = clock.span(settings.request_timeout_seconds)
        for reason, share in settings.reason_shares.items():
            metrics.REASON_SHARES.labels(reason).set(share)
        for name, terms in settings.classes.items():
            metrics.CLASS_SHARES.labels(name).set(terms.share)
            metrics.CLASS_WEIGHTS.labels(name).set(terms.weight)
        self._window = FleetWindow(timeout, self._count_in_flight)
        self._ready: dict[Shard, tuple[int, int]] = {}
        """The shards whose slots were filled last, and the answers that had come there."""
        self.seconds = 0.0
        """Wall seconds that it took to fill the last slots; what the thread did before them does
        not count."""

    def fill(
        self,
        times: NDArray[np.float64],
        owners: NDArray[np.int32],
        plan: SlotPlan,
        limits: Limits = NO_LIMITS,
    ) -> list[Emission]:
        """Pick a page for each slot of a shard that is ready.

        Args:
            times: of the slots, rising.
            owners: shard of each.
            plan: that holds at the end; says λ₀, the rate and the shares.
            limits: of groups of hosts, which hold at all of these slots.
        """
        began = time.perf_counter()
        try:
            return self._fill(times, owners, plan, limits)
        finally:
            self.seconds = time.perf_counter() - began

    def _fill(
        self,
        times: NDArray[np.float64],
        owners: NDArray[np.int32],
        plan: SlotPlan,
        limits: Limits,
    ) -> list[Emission]:
        self._follow_shards()
        times, owners = self._within_reach(times, owners, plan)
        if not times.size:
            return []
        order = np.argsort(owners, kind="stable")
        times, owners = times[order], owners[order]
        present, starts = np.unique(owners, return_index=True)
        emissions = []
        for number, given in zip(present, np.split(times, starts[1:]), strict=True):
            shard = self._shards[int(number)]
            slots = given[given > shard.filled_until]
            if slots.size:
                emissions.append(self._fill_shard(shard, slots, plan, limits))
        self._window.asked(sum(len(emission.messages) for emission in emissions))
        return emissions

    def _follow_shards(self) -> None:
        ready = [s for s in self._shards.values() if s.is_caught_up and not s.is_held]
        if self._ready.keys() != set(ready):
            self._window.recount()
            known = self._ready
            self._ready = {shard: known.get(shard, shard.notes.answers) for shard in ready}
            for place, shard in enumerate(ready):
                shard.selector.share_work(len(ready), place)

    def _within_reach(
        self, times: NDArray[np.float64], owners: NDArray[np.int32], plan: SlotPlan
    ) -> tuple[NDArray[np.float64], NDArray[np.int32]]:
        """The slots of shards that are ready, without those for which the crawlers have no time."""
        # A table by shard, from `NOBODY` on: `numpy.isin` costs more than the few slots of a turn.
        is_ready = np.zeros(int(owners.max(initial=NOBODY)) - NOBODY + 1, np.bool_)
        places = [shard.number - NOBODY for shard in self._ready]
        is_ready[[place for place in places if place < is_ready.size]] = True
        ours = is_ready[owners - NOBODY]
        times, owners = times[ours], owners[ours]
        if not times.size:
            return times, owners
        answered = sum(shard.notes.answered - had for shard, (had, _) in self._ready.items())
        elsewhere = sum(
            shard.notes.answered_elsewhere - had for shard, (_, had) in self._ready.items()
        )
        self._ready = {shard: shard.notes.answers for shard in self._ready}
        latest = float(times[-1])
        rate = plan.rate_at(latest) * sum(plan.share_of(s.number) for s in self._ready)
        room = self._window.room(latest, answered, rate, elsewhere)
        for number in owners[room:].tolist():
            self._shards[number].notes.held_slots += 1
        metrics.HELD_SLOTS.inc(owners[room:].size)
        return times[:room], owners[:room]

    def _count_in_flight(self, now: float) -> int:
        return sum(shard.in_flight(now) for shard in self._ready)

    def _fill_shard(
        self, shard: Shard, slots: NDArray[np.float64], plan: SlotPlan, limits: Limits
    ) -> Emission:
        least = 0.0 if self._work_conserving else plan.multiplier
        least = max(least, shard.rules.picking.least_value)
        rate = plan.rate_at(float(slots[-1])) * plan.share_of(shard.number)
        shard.groups.follow(limits, rate, float(slots[0]))
        picks = shard.select(slots, rate, least)
        shard.filled_until = float(slots[-1])
        asked, by_tier, least_value = crawls_of(shard, picks, plan.multiplier)
        if unused := picks.size - asked.size:
            shard.notes.unused_slots += unused
            metrics.EMPTY_SLOTS.inc(unused)
        shard.notes.note_crawls(by_tier, least_value)
        messages = write_requests(shard, asked)
        spans = self.traces.asked_for(shard, asked, messages) if self.traces else {}
        if not shard.rules.classes:
            return Emission(shard, asked, messages, spans)
        classes = shard.records["page_class"][asked["row"]]
        emission = Emission(shard, asked, messages, spans, classes, shard.classes.named())
        shard.notes.note_classes(emission.by_class())
        return emission


def take_back(emission: Emission) -> None:
    """The requests are not sent after all: their pages are not in flight, and they do not count."""
    emission.shard.take_back(emission.picks["row"])
    emission.shard.notes.take_back(emission.by_tier(), emission.by_class())


def parted(emission: Emission, earliest: float) -> tuple[Emission | None, Emission]:
    """What is for slots before a time, None if nothing is; and the rest."""
    late = emission.picks["time"] < earliest
    if not late.any():
        return None, emission
    gone, kept = np.flatnonzero(late), np.flatnonzero(~late)
    return _part_of(emission, gone), _part_of(emission, kept)


def rest_of(emission: Emission, taken: int) -> Emission:
    """What is left of it when so many requests were sent."""
    return _part_of(emission, np.arange(taken, len(emission.messages)))


def _part_of(emission: Emission, places: NDArray[np.int64]) -> Emission:
    messages, spans = emission.messages, emission.spans
    return Emission(
        emission.shard,
        emission.picks[places],
        [messages[place] for place in places.tolist()],
        {new: spans[old] for new, old in enumerate(places.tolist()) if old in spans},
        emission.classes[places] if emission.classes.size else emission.classes,
        emission.named,
    )


def lag_of(emissions: list[Emission], now: float, speed: float) -> float:
    """Wall seconds since the oldest slot that was just filled; 0 without any."""
    oldest = min((e.picks["time"][0] for e in emissions if e.picks.size), default=math.inf)
    return max(now - float(oldest), 0.0) / speed if oldest < math.inf else 0.0
