"""What a decision costs the coordinator's event loop."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from services.coordinator.core import Coordination, Moment
from services.coordinator.picture import Picture
from shared.contracts.codec import decode, encode
from shared.contracts.messages import Bandwidth, DemandCurve

_POINTS = 48
_PAGES = 1_000_000
_NOW = 1.7e9


def measure_solver(
    shards: int, rounds: int = 20, seed: int = 0, reports: Sequence[DemandCurve] = ()
) -> dict[str, Any]:
    """Milliseconds of a processor for a round of reports, a decision, a sample for the picture.

    Args:
        shards: that report, each over its own part of the common grid.
        rounds: of which the slowest and the median are given.
        seed: of the curves.
        reports: recorded ones, which the shards make in turn; none: made up.
    """
    rng = np.random.default_rng(seed)
    coordination = Coordination(3.0, 0.3)
    coordination.lead(1, "bench")
    coordination.receive_bandwidth(Bandwidth(1000.0))
    picture = Picture(coordination)
    spent = []
    for number in range(rounds):
        now = Moment(_NOW + number, 100.0 + number)
        values = [encode(_report(rng, shard, now.clock, reports)) for shard in range(shards)]
        started = time.thread_time()
        for value in values:
            coordination.receive_demand(decode(DemandCurve, value), now.wall, now)
        received = time.thread_time()
        message = coordination.next(now)
        if message is not None:
            coordination.published(message, now)
        decided = time.thread_time()
        picture.sample(now, now.clock)
        sampled = time.thread_time()
        spent.append((received - started, decided - received, sampled - decided))
    milliseconds = 1e3 * np.array(spent)
    median, worst = np.median(milliseconds, axis=0), milliseconds.max(axis=0)
    return {
        "shards": shards,
        "reports_ms": {"median": round(float(median[0]), 2), "worst": round(float(worst[0]), 2)},
        "decision_ms": {"median": round(float(median[1]), 2), "worst": round(float(worst[1]), 2)},
        "picture_ms": {"median": round(float(median[2]), 2), "worst": round(float(worst[2]), 2)},
    }


def _report(
    rng: np.random.Generator, shard: int, now: float, recorded: Sequence[DemandCurve]
) -> DemandCurve:
    if recorded:
        report = recorded[shard % len(recorded)]
        # Of one run and sequence, each of them counts.
        return replace(report, shard=shard, reported_at=now, run="", sequence=0)
    start = int(rng.integers(-52, -40))
    grid = 10.0 ** (np.arange(start, start + _POINTS) / 8)
    scale = rng.lognormal(0, 1)
    return DemandCurve(
        shard=shard,
        instance="bench",
        reported_at=now,
        pages=_PAGES,
        thresholds=grid.tolist(),
        demand=(scale / np.sqrt(grid)).tolist(),
        ripe=(1e3 * scale / (1 + grid * 100)).tolist(),
        achieved_crawls_per_second=float(rng.uniform(0, 20)),
        host_limited_share=0.1,
        marginal_value=0.1,
    )
