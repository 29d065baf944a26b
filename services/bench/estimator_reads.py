"""What it costs an estimator to read pages by their ids, beside one that has them all in memory."""

import asyncio
import statistics
import time
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

import numpy as np

from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.bench.bulk_pages import BEGIN, PAGES_A_HOST, fill, host_of
from services.bench.estimator_pages import Outcomes
from services.bench.estimator_pipeline import Nowhere
from services.bench.processor_time import usage_with_children
from services.bench.real_system import scratch_folder
from services.estimator.compilation import warm_up
from services.estimator.handler import EstimatorHandler
from services.estimator.refitting import Refits
from shared.contracts.identity import shard_of
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings, load_settings

_ALL: Final = 1_000_000_000
_WARM_UP_BATCHES: Final = 2


@dataclass(slots=True)
class _Arm:
    """An estimator with half of the shards, and what its batches took."""

    handler: EstimatorHandler
    source: Outcomes
    clock: ManualClock
    wall: list[float] = field(default_factory=list)
    """Seconds of each batch."""
    own: float = 0.0
    server: float = 0.0
    """Processor seconds, of this process and of PostgreSQL."""

    async def batch(self, server: int, *, counts: bool) -> None:
        """Handle one more."""
        batch = self.source.batch(self.clock)
        begun, used = time.perf_counter(), time.process_time()
        used_by_server = usage_with_children(server).seconds
        await self.handler.handle(batch)
        if counts:
            self.wall.append(time.perf_counter() - begun)
            self.own += time.process_time() - used
            self.server += usage_with_children(server).seconds - used_by_server

    def report(self, batch: int) -> dict[str, Any]:
        """Its figures."""
        outcomes = batch * len(self.wall)
        return {
            "outcomes": outcomes,
            "outcomes_per_second": round(outcomes / sum(self.wall)),
            "outcomes_per_second_of_the_median_batch": round(batch / statistics.median(self.wall)),
            "processor_us_an_outcome": round(1e6 * self.own / outcomes, 1),
            "processor_us_an_outcome_of_postgres": round(1e6 * self.server / outcomes, 1),
        }


def run(pages: int = 1_000_000, resident: int = 100_000, seconds: float = 60.0) -> dict[str, Any]:
    """Fill a database with pages of full histories, and have two estimators share its shards.

    Their batches take turns, so both meet the same machine. Outcomes are about any pages: that is
    the most that there may be to read.

    Args:
        pages: in the database.
        resident: the bound of pages in memory of the one; the other has all of its own.
        seconds: that the batches of both take together, after some to warm up.

    Returns:
        of both, `few_in_memory` and `all_in_memory`: outcomes a second, and processor time an
        outcome; and what the first does of the second's: `ratio` of the rates, `median_ratio` of
        those of the median batches, `processor_ratio` of the processor time.
    """
    with scratch_folder() as folder:
        folder.chmod(0o711)
        postgres = EmbeddedPostgres(folder / "postgres")
        postgres.start()
        try:
            settings = load_settings(database_url=postgres.uri)
            migrate(postgres.uri, settings.partitions)
            fill(settings, pages)
            warm_up()
            # A refit is measured by itself (`estimator_pages`).
            with patch.object(Refits, "are_due", return_value=False):
                return asyncio.run(
                    _measured(settings, pages, resident, seconds, postgres.process_id or 0)
                )
        finally:
            postgres.stop()


async def _measured(
    settings: Settings, pages: int, resident: int, seconds: float, server: int
) -> dict[str, Any]:
    half, shards = settings.partitions // 2, settings.partitions
    few = await _begun(settings, pages, resident, range(half))
    whole = await _begun(settings, pages, _ALL, range(half, shards))
    arms = (few, whole)
    try:
        for turn in range(1_000_000):
            for arm in arms:
                await arm.batch(server, counts=turn >= _WARM_UP_BATCHES)
            if sum(few.wall) + sum(whole.wall) >= seconds:
                break
    finally:
        for arm in arms:
            await arm.handler.close()
    one, other = (arm.report(settings.batch_max_messages) for arm in arms)
    cost = [arm.own + arm.server for arm in arms]
    return {
        "pages": pages,
        "resident": resident,
        "few_in_memory": one,
        "all_in_memory": other,
        "ratio": round(sum(whole.wall) / sum(few.wall), 3),
        "median_ratio": round(statistics.median(whole.wall) / statistics.median(few.wall), 3),
        "processor_ratio": round(cost[1] / cost[0], 3),
    }


async def _begun(settings: Settings, pages: int, resident: int, shards: range) -> _Arm:
    clock = ManualClock(BEGIN)
    bounded = settings.model_copy(update={"estimator_resident_pages": resident})
    handler = EstimatorHandler(bounded, clock, Nowhere(), asyncio.Event())
    await handler.open()
    positions = await handler.assigned(set(shards))
    hosts = [
        number
        for number in range(-(-pages // PAGES_A_HOST))
        if shard_of(host_of(number), settings.partitions) in shards
    ]
    numbers = np.array(hosts)[:, np.newaxis] * PAGES_A_HOST + np.arange(PAGES_A_HOST)
    mine = numbers[numbers < pages]
    return _Arm(handler, Outcomes(settings, mine, dict(positions)), clock)
