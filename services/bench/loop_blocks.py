"""How long the workers' event loops are blocked by a backlog, on a broker and a database.

Each step of the loop is measured in processor time of its thread, so that what else the machine
does makes no difference. The aim: never more than 20 ms.
"""

import asyncio
import gc
import tempfile
import time
import uuid
from asyncio.events import Handle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deploy.local.kafka import LocalBroker
from deploy.local.postgres import EmbeddedPostgres
from migrations.upgrade import migrate
from services.estimator.worker import Estimator
from services.ingester.worker import Ingester
from services.scheduler.worker import Scheduler
from shared.contracts.codec import encode
from shared.contracts.identity import shard_of
from shared.contracts.messages import CrawlOutcome, PageUpdate, Signal
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_UPDATES, SIGNALS, Topic
from shared.runtime import metrics
from shared.runtime.kafka import ensure_topics
from shared.runtime.publisher import Publisher
from shared.runtime.settings import Settings, load_settings
from shared.runtime.worker import WorkerService, spare_collector
from shared.units import SECONDS_PER_DAY

_HOSTS = 997
_CRAWLED_AT = 1.6e9
_QUIET_SECONDS = 1.0
"""A backlog is done when nothing more was read for so long."""

Given = dict[tuple[str, int], list[tuple[bytes, bytes]]]


class _Steps:
    """The longest steps of the running loop, by what ran."""

    def __init__(self) -> None:
        self.longest: dict[str, float] = {}

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure all steps of a block."""
        # The loop offers no hook around its steps but this method.
        run: Any = Handle._run  # noqa: SLF001

        def timed(handle: Any) -> None:
            callback, began = handle._callback, time.thread_time()  # noqa: SLF001
            run(handle)
            spent = time.thread_time() - began
            owner = getattr(callback, "__self__", None)
            coroutine = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
            name = getattr(coroutine, "__qualname__", type(callback).__name__)
            self.longest[name] = max(self.longest.get(name, 0.0), spent)

        setattr(Handle, "_run", timed)  # noqa: B010 - mypy allows no method to be replaced
        try:
            yield
        finally:
            setattr(Handle, "_run", run)  # noqa: B010


def run(messages: int = 40_000, partitions: int = 16, shown: int = 5) -> dict[str, Any]:
    """Give each worker a backlog, and measure the steps of its loop while it works that off.

    Args:
        messages: signals for the ingester; as many page updates, and crawls of those pages, for
            estimator and scheduler.
        partitions: of the topics.
        shown: how many of each worker's longest steps are told.

    Returns:
        for each worker `<name>_longest_ms`, and `<name>_steps`: what ran → its longest step, ms.
    """
    with tempfile.TemporaryDirectory(prefix="freshet-bench-") as folder:
        Path(folder).chmod(0o711)
        broker = LocalBroker(Path(folder) / "broker")
        postgres = EmbeddedPostgres(Path(folder) / "postgres")
        broker.start()
        postgres.start()
        try:
            settings = load_settings(
                kafka_bootstrap_servers=broker.bootstrap_servers,
                database_url=postgres.uri,
                partitions=partitions,
                topic_prefix=f"bench-{uuid.uuid4().hex}-",
                signals_per_source_per_second=1e9,
                signals_from_others_per_second=1e9,
            )
            migrate(postgres.uri, partitions)
            return asyncio.run(_measure(settings, messages, shown))
        finally:
            postgres.stop()
            broker.stop()


async def _measure(settings: Settings, count: int, shown: int) -> dict[str, Any]:
    await ensure_topics(settings)
    await _fill(settings, SIGNALS, count)
    await _fill(settings, PAGE_UPDATES, count)
    await _fill(settings, CRAWL_OUTCOMES, count)
    answer: dict[str, Any] = {"messages": count, "partitions": settings.partitions}
    kinds: dict[str, type[WorkerService]] = {
        "ingester": Ingester,
        "estimator": Estimator,
        "scheduler": Scheduler,
    }
    for name, kind in kinds.items():
        steps = await _work_off(kind(settings))
        worst = sorted(steps.items(), key=lambda item: -item[1])[:shown]
        answer[f"{name}_longest_ms"] = round(worst[0][1] * 1e3, 1)
        answer[f"{name}_steps"] = {step: round(spent * 1e3, 1) for step, spent in worst}
    return answer


async def _work_off(worker: WorkerService) -> dict[str, float]:
    """The longest steps of a worker's loop, from its start until it has read everything."""
    steps = _Steps()
    try:
        await worker.open()
        spare_collector()
        with steps.measured():
            loops = [asyncio.create_task(loop) for loop in worker.loops()]
            before, since = _read(), time.monotonic()
            begun = before
            while before == begun or time.monotonic() - since < _QUIET_SECONDS:
                await asyncio.sleep(0.05)
                if (now := _read()) != before:
                    before, since = now, time.monotonic()
            worker.stopping.set()
            await asyncio.gather(*loops)
    finally:
        await worker.close()
        gc.unfreeze()
    return steps.longest


def _read() -> float:
    """Records that were read so far, of all topics."""
    return sum(
        sample.value
        for metric in metrics.MESSAGES_CONSUMED.collect()
        for sample in metric.samples
        if sample.name.endswith("_total")
    )


async def _fill(settings: Settings, topic: Topic, count: int) -> None:
    given: Given = {}
    for number in range(count):
        host = f"h{number % _HOSTS}.example"
        url = f"https://{host}/{number}"
        message: Any = Signal(url, "cms", time.time())
        if topic is PAGE_UPDATES:
            message = PageUpdate("upsert", url, updated_at=_CRAWLED_AT, crawled_at=_CRAWLED_AT)
        elif topic is CRAWL_OUTCOMES:
            message = CrawlOutcome(url, _CRAWLED_AT + SECONDS_PER_DAY, result="changed")
        place = (topic.name, shard_of(host, settings.partitions))
        given.setdefault(place, []).append((host.encode(), encode(message)))
    publisher = Publisher(settings)
    await publisher.start()
    try:
        await publisher.send_batches(given)
    finally:
        await publisher.stop()
