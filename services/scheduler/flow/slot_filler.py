"""What is asked for with the slots that have come."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler import metrics
from services.scheduler.flow.requests import write_requests
from services.scheduler.picking.priority import BY_VALUE, REASONS
from services.scheduler.state.rows import Rows
from services.scheduler.state.shard import Shard
from shared.pacing.slots import SlotPlan
from shared.runtime.settings import Settings

_REQUESTS_BY_TIER: Final = [metrics.REQUESTS.labels(reason) for reason in REASONS]


@dataclass(frozen=True, slots=True)
class Emission:
    """What a shard asks for in one tick."""

    shard: Shard
    picks: Rows
    messages: list[tuple[bytes, bytes]]
    """Key and value."""


class SlotFiller:
    """Fills slots with pages, and writes the requests. Runs in the shards' thread."""

    def __init__(self, settings: Settings, shards: Mapping[int, Shard]) -> None:
        self._shards = shards
        self._work_conserving = settings.work_conserving

    def fill(
        self,
        times: NDArray[np.float64],
        owners: NDArray[np.int32],
        plan: SlotPlan,
    ) -> list[Emission]:
        """Pick a page for each slot of a shard that is ready.

        Args:
            times: of the slots, rising.
            owners: shard of each.
            plan: that holds at the end; says λ₀, the rate and the shares.
        """
        order = np.argsort(owners, kind="stable")
        times, owners = times[order], owners[order]
        present, starts = np.unique(owners, return_index=True)
        emissions = []
        for number, given in zip(present, np.split(times, starts[1:]), strict=True):
            shard = self._shards.get(int(number))
            if shard is None or not shard.is_caught_up:
                continue
            slots = given[given > shard.filled_until]
            if slots.size:
                emissions.append(self._fill_shard(shard, slots, plan))
        return emissions

    def _fill_shard(self, shard: Shard, slots: NDArray[np.float64], plan: SlotPlan) -> Emission:
        least = 0.0 if self._work_conserving else plan.multiplier
        rate = plan.slots_per_second * plan.share_of(shard.number)
        picks = shard.selector.select(slots, rate, least)
        shard.filled_until = float(slots[-1])
        crawls = picks[picks["row"] >= 0]
        metrics.EMPTY_SLOTS.inc(picks.size - crawls.size)
        for counter, count in zip(
            _REQUESTS_BY_TIER, np.bincount(crawls["tier"], minlength=len(REASONS)), strict=True
        ):
            if count:
                counter.inc(int(count))
        values = crawls["value"][crawls["tier"] == BY_VALUE]
        shard.note_crawls(crawls.size, float(values.min(initial=math.inf)))
        return Emission(shard, crawls, write_requests(shard, crawls, plan.multiplier))


def take_back(emission: Emission) -> None:
    """The requests are not sent after all: their pages are not in flight."""
    emission.shard.take_back(emission.picks["row"])


def lag_of(emissions: list[Emission], now: float, speed: float) -> float:
    """Wall seconds since the oldest slot that was just filled; 0 without any."""
    oldest = min((e.picks["time"][0] for e in emissions if e.picks.size), default=math.inf)
    return max(now - float(oldest), 0.0) / speed if oldest < math.inf else 0.0
