"""One demonstration from the first process to the last: start, watch, drain, report, stop."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import Any, Final

from deploy.local.process import StartError
from services.demo import report
from services.demo.pinging import Pinger
from services.demo.plan import make_plan
from services.demo.survey import Survey
from services.demo.system import DemoOptions, DemoSystem
from services.demo.tally import Tally
from services.demo.website import LOOPBACK, Site, Website
from services.run.errors import RunFailed
from services.run.preparing import prepare_system, publish_budget
from services.run.readiness import wait_until_ready
from services.run.stack import BROKER_VARIABLE, DATABASE_VARIABLE
from shared.runtime.ending import STOP_SIGNALS

LOOK_SECONDS: Final = 0.5
DRAIN_SECONDS: Final = 15.0
"""The last requests get so long to be answered."""

QUIET_SECONDS: Final = 1.5
"""Without a request for so long after the budget is gone, there will be none."""

ADDED_AT_ONCE: Final = 4
"""Sites; each is a command of its own."""

Say = Callable[[str], None]


class Demo:
    """A demonstration that is under way."""

    def __init__(self, options: DemoOptions, say: Say) -> None:
        """Make it; forgets what the environment says of other systems.

        Args:
            options: what was asked for.
            say: takes lines for people.
        """
        self.options = options
        self.system = DemoSystem(options)
        self.website = Website(
            make_plan(options.sites, options.pages, options.seconds, options.seed)
        )
        self.survey = Survey(self.website, self.system.copies)
        self.interrupted = False
        self._say = say
        self._may_be_given_up = True
        """Until it is under way; while it stops, too, nothing is to be left running."""
        self._stop = asyncio.Event()
        self._tally: Tally | None = None
        self._pinger: Pinger | None = None

    @property
    def url(self) -> str:
        """Of the coordinator's page."""
        return f"http://{LOOPBACK}:{self.system.stack.ports['coordinator']}/"

    @property
    def tally(self) -> Tally:
        """What goes over the broker.

        Raises:
            RuntimeError: before there is one.
        """
        if self._tally is None:
            raise RuntimeError("the broker is not started yet")
        return self._tally

    @property
    def pinger(self) -> Pinger:
        """The sites' own pings.

        Raises:
            RuntimeError: before the sites are there.
        """
        if self._pinger is None:
            raise RuntimeError("the sites are not there yet")
        return self._pinger

    async def run(self, watch: Callable[["Demo"], None]) -> dict[str, Any] | None:
        """Do it all.

        Args:
            watch: called again and again with this while it runs.

        Returns:
            the report; None where it was stopped before it began.

        Raises:
            RunFailed: a process did not start; says where its log is.
        """
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._interrupt, main)
        with self.system.stack.locked():
            try:
                await self._start()
                return await self._measure(watch)
            except StartError as error:
                raise RunFailed(f"{error}\nThe logs are in {self.system.stack.logs}") from error
            except asyncio.CancelledError:
                # Ctrl-C before everything was up; what was started is stopped below.
                self._say("stopped before everything was ready")
                return None
            finally:
                self._may_be_given_up = False
                if self._tally is not None:
                    await self._tally.stop()
                await self.system.stack.stop()
                await self.website.stop()
                for number in STOP_SIGNALS:
                    loop.remove_signal_handler(number)

    async def _start(self) -> None:
        stack, began = self.system.stack, time.monotonic()
        self._say("starting PostgreSQL, the broker and the sites")
        await self.website.start()
        await stack.start_servers()
        await prepare_system(stack.settings, own_database=stack.own_database, must_be_empty=False)
        self._tally = Tally(stack.settings)
        await self._tally.start()
        self._say("starting the workers and the crawler; adding the sites")
        processes = self.system.processes()
        stack.write_environment()
        await stack.supervisor.start(processes)
        turns = asyncio.Semaphore(ADDED_AT_ONCE)
        await asyncio.gather(*(self._add(site, turns) for site in self.website.sites))
        await wait_until_ready(stack)
        self._pinger = Pinger(self.website, self.system.receiver)
        self._say(f"everything is up after {time.monotonic() - began:.1f} s; see {self.url}")

    async def _add(self, site: Site, turns: asyncio.Semaphore) -> None:
        """`freshet sites add`, as anybody would.

        Raises:
            RunFailed: it does not work.
        """
        settings = self.system.stack.settings
        environment = os.environ | {
            BROKER_VARIABLE: settings.kafka_bootstrap_servers,
            DATABASE_VARIABLE: settings.database_url.get_secret_value(),
            "FRESHET_PARTITIONS": str(settings.partitions),
        }
        command = ("-m", "services.cli.main", "sites", "add", site.origin)
        async with turns:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, *command),
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            try:
                output, _ = await process.communicate()
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        if process.returncode != 0:
            raise RunFailed(f"freshet {' '.join(command[2:])}:\n{output.decode(errors='replace')}")

    async def _measure(self, watch: Callable[["Demo"], None]) -> dict[str, Any]:
        """Let the web move, and measure; what the report says."""
        settings = self.system.stack.settings
        self.website.begin()
        self._may_be_given_up = False
        await publish_budget(settings, self.options.crawls_per_second)
        counting = asyncio.create_task(self.tally.run())
        moving = [asyncio.create_task(loop.run()) for loop in (self.pinger, self.survey)]
        try:
            while self.website.now() < self.options.seconds and not self._stop.is_set():
                self._check([counting, *moving])
                watch(self)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stop.wait(), LOOK_SECONDS)
            self.website.end()
            visits = list(self.website.visits)
            for task in moving:
                task.cancel()
            if not self._stop.is_set():
                self._say("draining: no budget any more, and the last requests are answered")
                await publish_budget(settings, 0.0)
                await self._drained()
            return report.compose(self, visits)
        finally:
            for task in (counting, *moving):
                task.cancel()
            await asyncio.gather(counting, *moving, return_exceptions=True)

    async def _drained(self) -> None:
        """Wait until each request is answered, and no new one comes."""
        deadline = time.monotonic() + DRAIN_SECONDS
        quiet_since, seen = time.monotonic(), -1
        while time.monotonic() < deadline and not self._stop.is_set():
            if len(self.tally.requests) != seen or self.tally.in_flight:
                quiet_since, seen = time.monotonic(), len(self.tally.requests)
            if time.monotonic() - quiet_since > QUIET_SECONDS:
                return
            await asyncio.sleep(LOOK_SECONDS)

    def _check(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            if task.done():
                task.result()

    def _interrupt(self, main: asyncio.Task[Any] | None) -> None:
        # Once: a second Ctrl-C is not to disturb what the first one ends.
        if not self.interrupted and self._may_be_given_up and main is not None:
            main.cancel()
        self.interrupted = True
        self._stop.set()
