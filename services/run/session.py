"""One run from the first process to the last: start, watch, drain, report, stop."""

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any

from deploy.local.process import StartError
from deploy.local.supervisor import ChildState
from services.run.errors import RunFailed
from services.run.options import RunOptions
from services.run.preparing import (
    make_plan,
    prepare_system,
    publish_budget,
    require_no_former_run,
    require_one_database,
)
from services.run.readiness import wait_until_ready
from services.run.report import compose
from services.run.stack import LOOPBACK, Stack
from services.world.importing import Progress, import_world
from services.world.plan import write_plan
from shared.runtime.asking import ask
from shared.runtime.clock import open_gate
from shared.runtime.ending import STOP_SIGNALS
from shared.runtime.settings import load_settings

LOOK_SECONDS = 0.5
STOP_GRACE_SECONDS = 1.5
"""The world gets so long to write its result when the run is stopped early."""

Say = Callable[[str], None]


class Session:
    """A run that is under way."""

    def __init__(self, options: RunOptions, say: Say, progress: Progress) -> None:
        self.options = options
        self.stack = Stack(options)
        self.started_at: float | None = None
        """Wall (monotonic) time at which everything was ready."""
        self.interrupted = False
        self._is_starting = False
        self.picture: dict[str, Any] = {}
        """Where there is no world: what the coordinator shows on its page."""
        self.partitions = 0
        """Of each topic by shards, once tables and topics are there."""
        self._say = say
        self._progress = progress
        self._stop = asyncio.Event()

    @property
    def url(self) -> str:
        """Address of the web page."""
        page = f"http://{LOOPBACK}:{self.stack.ports['coordinator']}/"
        world = self.stack.ports.get("world")
        return page if world is None else f"{page}?world=http://{LOOPBACK}:{world}/status"

    async def run(self, watch: Callable[["Session"], Any]) -> dict[str, Any] | None:
        """Do the run.

        Args:
            watch: called again and again with this session while it runs.

        Returns:
            the report; None where there is no world to report on.

        Raises:
            RunFailed: a process did not start or died for good; says where its log is.
            RunRefused: the settings name several databases, or the one that they name is not fit,
                or was a former run's.
        """
        require_one_database(settings := load_settings())
        if not self.stack.own_database:
            require_no_former_run(settings)
        loop = asyncio.get_running_loop()
        main = asyncio.current_task()
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, self._interrupt, main)
        with self.stack.locked():
            try:
                self._is_starting = True
                await self._start()
                self._is_starting = False
                await self._watch(watch)
                await self._finish()
            except StartError as error:
                raise RunFailed(f"{error}\nThe logs are in {self.stack.logs}") from error
            except asyncio.CancelledError:
                # Ctrl-C before everything was up; what was started is stopped below.
                self._say("stopped before everything was ready")
            finally:
                self._is_starting = False
                await self.stack.stop()
                for number in STOP_SIGNALS:
                    loop.remove_signal_handler(number)
            return self._report()

    async def _start(self) -> None:
        stack, options = self.stack, self.options
        began = time.monotonic()
        if stack.borrowed:
            self._say(f"using the servers that {' and '.join(stack.borrowed)} name")
        own = {"PostgreSQL": stack.own_database, "the broker": stack.own_broker}
        if any(own.values()):
            self._say(f"starting {' and '.join(name for name, is_own in own.items() if is_own)}")
        await stack.start_servers()
        simulated = options.world != "none"
        self.partitions = await prepare_system(
            stack.settings, own_database=stack.own_database, must_be_empty=simulated
        )
        if simulated:
            plan = make_plan(options, stack.status_file, stack.result_file)
            write_plan(plan, stack.plan_file)
            count = await import_world(stack.settings, plan, self._progress)
            self._say(f"{count:,} pages imported")
        if options.budget:
            await publish_budget(stack.settings, options.budget[0].crawls_per_second)
        self._say("starting the workers; the first time they compile for a minute or two")
        specs = stack.workers()
        stack.write_environment()
        if simulated:
            specs.append(stack.world())
        await stack.supervisor.start(specs)
        await wait_until_ready(stack)
        if stack.gate is not None:
            open_gate(stack.gate)
        self.started_at = time.monotonic()
        self._say(f"everything is up after {self.started_at - began:.1f} s; see {self.url}")

    async def _watch(self, watch: Callable[["Session"], Any]) -> None:
        ended = self._world_ended() if self.stack.gate is not None else self._stop.wait()
        coordinator = f"http://{LOOPBACK}:{self.stack.ports['coordinator']}"

        def look() -> dict[str, Any]:
            return ask(coordinator, "/state.json") or {}

        waiting = asyncio.ensure_future(ended)
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            while not waiting.done() and not stopping.done():
                if self.options.world == "none":
                    self.picture = await asyncio.to_thread(look)
                watch(self)
                await asyncio.wait(
                    [waiting, stopping],
                    timeout=LOOK_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
            if waiting.done():
                waiting.result()
        finally:
            waiting.cancel()
            stopping.cancel()

    async def _world_ended(self) -> None:
        code = await self.stack.supervisor.wait_for_exit("world")
        if code != 0 and not self._stop.is_set():
            raise RunFailed(
                f"the world ended with {code}; its log is {self.stack.logs / 'world.log'}"
            )

    async def _finish(self) -> None:
        """Let the world of an interrupted run write down what it came to."""
        if not self.interrupted or self.stack.gate is None:
            return
        self.stack.end_world()
        deadline = time.monotonic() + STOP_GRACE_SECONDS
        while time.monotonic() < deadline:
            if self.stack.result_file.exists():
                return
            await asyncio.sleep(0.02)

    def _interrupt(self, main: asyncio.Task[Any] | None) -> None:
        # Once, and only what starts: Ctrl-C is not to cut short what stops everything.
        may_cancel = self._is_starting and not self.interrupted
        self.interrupted = True
        self._stop.set()
        if may_cancel and main is not None:
            main.cancel()

    def _report(self) -> dict[str, Any] | None:
        if self.stack.gate is None or not self.stack.result_file.exists():
            return None
        restarts = {child.name: child.restarts for child in self.stack.supervisor.children()}
        result = json.loads(self.stack.result_file.read_text())
        report = compose(
            result, self.options, self.stack.settings, restarts, interrupted=self.interrupted
        )
        if self.options.report is not None:
            self.options.report.write_text(json.dumps(report, indent=2) + "\n")
        return report

    def status(self) -> dict[str, Any]:
        """The world's status; empty while there is none."""
        try:
            status: dict[str, Any] = json.loads(self.stack.status_file.read_text())
        except (OSError, ValueError):
            return {}
        return status

    def failing(self) -> list[str]:
        """Children that are not running, and where their logs are."""
        return [
            f"{child.name} is {child.state.value} ({child.restarts} restarts), "
            f"see {self.stack.logs / child.name}.log"
            for child in self.stack.supervisor.children()
            if child.state in {ChildState.BACKING_OFF, ChildState.STARTING}
        ]
