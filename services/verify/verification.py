"""One verification from the first process to the verdict."""

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from deploy.local.process import StartError
from services.verify import audit, checking, report
from services.verify.campaign import Campaign
from services.verify.crawlers import Crawlers
from services.verify.crowd import make_crowd
from services.verify.draining import Memory, drain, memory_of
from services.verify.faults import Injector
from services.verify.plan import Topology, VerifyPlan
from services.verify.poison import Poison
from services.verify.sending import Sender
from services.verify.system import System
from services.verify.traffic import Traffic
from shared.store.import_rows import PageBatch
from shared.store.imports import import_pages

BEGINNING: Final = "beginning"
"""Database with the state before the first worker started."""

FIRST_WORKERS: Final[Mapping[Topology, tuple[str, ...]]] = {
    "one": ("coordinator-1", "coordinator-2", "estimator-1", "ingester-1", "scheduler-1"),
    "cluster": tuple(
        f"{kind}-{number}"
        for kind in ("coordinator", "estimator", "ingester", "scheduler")
        for number in (1, 2)
    ),
}
STEADY_SECONDS: Final = 180.0
"""The system gets so long to reach its budget at the start."""

SAMPLE: Final = 300
"""Pages of which the schedulers' memory is looked at; those that came or went on top."""

Say = Callable[[str], None]


class Verification:
    """A verification under way: figures for whoever watches."""

    def __init__(self, plan: VerifyPlan, say: Say) -> None:
        self.plan = plan
        self.state = "starting"
        self.began = time.time()
        self.directory = plan.keep or Path(tempfile.mkdtemp(prefix="freshet-verify-"))
        self.directory.mkdir(parents=True, exist_ok=True)
        self.directory.chmod(0o711)
        self.crowd = make_crowd(plan.pages, plan.seed, plan.max_age_seconds)
        self.system = System(plan, self.directory)
        settings = self.system.settings
        self.sender = Sender(settings, plan.seed, in_transactions=plan.in_transactions)
        self.crawlers = Crawlers(
            *(settings, self.crowd, self.sender, plan.seed),
            in_old_words=plan.before is not None,
        )
        self.traffic = Traffic(self.crowd, self.sender, plan.seed, tuple(plan.classes))
        self.poison = Poison(settings, plan.seed)
        self.injector = Injector(self.system, self.sender, self.crawlers, self.poison, plan)
        self._say = say
        self._held_at = np.empty(0)
        self._drained = False

    async def run(self) -> dict[str, Any]:
        """Do it.

        Returns:
            the report.

        Raises:
            StartError: the system does not come up, or does not get to its budget unharmed.
        """
        try:
            await self._start()
            async with self._world():
                await self._steady()
                self.began = time.time()
                self.state = "harming"
                campaign = Campaign(
                    *(self.system, self.injector, self.crawlers, self.sender),
                    self.plan,
                )
                await campaign.run(self.plan.seconds)
                memory = await self._drain()
            self.state = "checking"
            return await self._check(memory)
        finally:
            await self.system.stop()

    async def _start(self) -> None:
        self._say("starting PostgreSQL and Kafka")
        await self.system.start_servers()
        await asyncio.to_thread(self._import)
        await asyncio.to_thread(audit.install, self.system.database_url)
        await asyncio.to_thread(self.system.copy_database, BEGINNING)
        await self.sender.start()
        await self.sender.set_budget(self.plan.highest_rate)
        self.traffic.limit_hosts()
        if self.plan.before is None:
            await self.traffic.limit_further()
        # What is asked for from the first moment on is judged by them.
        await self.sender.send_now()
        self._say("starting the workers")
        await self.system.start_first_workers(FIRST_WORKERS[self.plan.topology])
        await self.system.wait_until_ready()

    def _import(self) -> None:
        pages = self.crowd.pages
        rng = np.random.default_rng([self.plan.seed, 14])
        ages = rng.uniform(0.0, self.plan.max_age_seconds, len(pages))
        self._held_at = np.where(pages.held, time.time() - ages, -np.inf)
        urls = pa.array(list(pages.urls), pa.string())
        batch = PageBatch(urls, pages.importance, pages.max_age_days, self._held_at)
        import_pages(
            self.system.database_url, self.system.settings.partitions, [batch], now=time.time()
        )

    @contextlib.asynccontextmanager
    async def _world(self) -> AsyncIterator[None]:
        """The world lives, and its failure is the verification's."""
        origin = time.time()
        await self.crawlers.start(origin)
        loops: list[Awaitable[None]] = [
            *(self.sender.run(), self.crawlers.run(), self.traffic.run(origin))
        ]
        tasks = [asyncio.ensure_future(loop) for loop in loops]
        main = asyncio.current_task()

        def ended(task: asyncio.Future[None]) -> None:
            if not task.cancelled() and task.exception() is not None and main is not None:
                main.cancel()

        for task in tasks:
            task.add_done_callback(ended)
        try:
            yield
        except asyncio.CancelledError:
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.result()
            raise
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self.crawlers.stop()
            await self.sender.stop()

    async def _steady(self) -> None:
        self.state = "getting to the budget"
        deadline = time.monotonic() + STEADY_SECONDS
        while self.crawlers.rate(2.0) < 0.95 * self.plan.highest_rate or self.crawlers.catches_up:
            if time.monotonic() > deadline:
                raise StartError(
                    f"the unharmed system crawls {self.crawlers.rate(2.0):.0f} pages a second, not "
                    f"{self.plan.highest_rate:.0f}: is the machine too busy? "
                    f"Logs: {self.system.logs}"
                )
            await asyncio.sleep(0.2)

    async def _drain(self) -> Memory:
        self.state = "draining"
        await self.system.wait_until_ready(STEADY_SECONDS)
        self._drained = await drain(
            self.system, self.sender, self.crawlers, self.traffic, self.plan.max_age_seconds
        )
        return await memory_of(self.system, self._sample())

    def _sample(self) -> list[str]:
        """URLs of pages of which the schedulers' memory is looked at: any, and those that came or
        went."""
        rng = np.random.default_rng([self.plan.seed, 15])
        urls, expected = self.crowd.pages.urls, self.traffic.expected
        chosen = rng.choice(len(urls), min(SAMPLE, len(urls)), replace=False)
        came_or_went = [*expected.added, *expected.removed]
        return [*(urls[row] for row in chosen.tolist()), *came_or_went[-SAMPLE:]]

    async def _check(self, memory: Memory) -> dict[str, Any]:
        facts = checking.Facts(
            plan=self.plan,
            settings=self.system.settings,
            database_url=self.system.database_url,
            beginning_url=self.system.servers.database_uri(BEGINNING),
            limits=self.crowd.limits,
            group_limits=self.crowd.group_limits,
            addresses=self.crowd.addresses,
            open_bounds=self.crowd.open_bounds,
            held_at=dict(zip(self.crowd.pages.urls, self._held_at.tolist(), strict=True)),
            accounts=(self.sender.account, self.crawlers.seen),
            budget_changes=self.sender.budget_changes,
            injected=self.injector.injected,
            slow=self.sender.slow,
            transactions=self.sender.transactions.counts if self.sender.transactions else {},
            expected=self.traffic.expected,
            poison_written_at=self.poison.written_at,
            poison_tried=self.poison.tried,
            poison_refused=self.poison.refused,
            poison={
                place: f"{one.topic.name}: {one.what}" for place, one in self.poison.sent.items()
            },
            memory=memory,
            logs={log.stem: log.read_text() for log in self.system.logs.glob("*.log")},
            began=self.began,
            drained=self._drained,
        )
        findings = await checking.check(facts)
        return report.compose(self.plan, facts, findings, self.system.restarts())

    def clean_up(self) -> None:
        """Remove the logs and the data."""
        if self.plan.keep is None:
            shutil.rmtree(self.directory, ignore_errors=True)
