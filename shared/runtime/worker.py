"""What all workers are: a Faust app with a web server, health, metrics and a watchdog.

Faust brings the worker around a service: its start and stop, signals, logging, and the web server.
What it could also do, and why it is not asked to:

- *Agents for the busy topics.* An agent costs 80 µs a message, 12,000 messages a second of a core
  (measured); `BatchConsumer` reads 600,000. And Faust acknowledges what an agent failed at, and may
  commit past a message that is still at work (faust-streaming #606): what a batch did and the
  offset it goes up to would no longer be stored together.
- *Agents for the quiet topics* (`bandwidth`, `multipliers`). Every process has to read all of each,
  from what stands there at its start; an agent reads its group's share from what the group has
  committed, so each process would need a group of its own, which it leaves behind on the broker.
  An agent whose topic is made after Faust's consumer has started is never handed a message of it,
  and an app with agents does not start while no broker answers. A `GlobalTable` is not kept up on
  every worker (#283), and tables lose entries when partitions move. See `Follower`.
- *Timers and tasks.* They start before the services do: here, before topics are checked and parts
  are open. At the stop they are cancelled where they stand. The loops of a worker begin when it is
  open, finish what they have at hand, and their progress is watched.

None of this speaks against an agent or a timer where a message may be lost or come twice, or a turn
be cut short.
"""

import asyncio
import faulthandler
import gc
import os
import signal
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

import faust
import structlog
from aiohttp.web import Response
from faust.app.base import BootStrategy
from mode import Service
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from shared.runtime import metrics
from shared.runtime.broker_watch import BrokerWatch
from shared.runtime.clock_offset import ClockOffset
from shared.runtime.databases import at_database, databases_of
from shared.runtime.ending import ignore_further_stops, naming_faults
from shared.runtime.kafka import ensure_topics, may_pass
from shared.runtime.logs import configure_logs
from shared.runtime.loop_lag import watch_loop_lag
from shared.runtime.reloading import Reloading
from shared.runtime.retrying import until_it_passes
from shared.runtime.settings import Settings, SettingsError
from shared.runtime.stopping import end
from shared.runtime.tracing import Tracing
from shared.runtime.web import WebServer, web_options
from shared.runtime.write_watch import WRITES

log = structlog.get_logger(__name__)

EXIT_STALLED = 70
"""Exit code of a worker that ended itself to be started again (`end_now`): it made no progress, or
what it has in memory or is connected to is worth nothing any more. Its last log line says why."""

STOP_SECONDS = 8.0
"""The batch at hand is given so long to finish on SIGTERM; the whole stop takes under ten."""

STOP_LIMIT_SECONDS = 9.0
"""A stop that takes longer, as a batch hangs in the database, is cut off: the batch was not stored
and is read again."""

LOOK_SECONDS = 0.5
"""Between two looks of the watchdog."""

COLLECTOR_THRESHOLDS = (20_000, 10, 10)
"""A batch's records are that many; the default of 700 looks at them again and again."""

DEFAULT_PORTS = {
    "ingester": 6066,
    "scheduler": 6067,
    "estimator": 6068,
    "coordinator": 6069,
    "receiver": 6071,
    "poller": 6072,
    "frontier": 6073,
    "discoverer": 6074,
}


def check_ports(settings: Settings, worker: str, name: str) -> None:
    """Refuse a worker's second port where its health and metrics are.

    Args:
        settings: of the worker.
        worker: its name.
        name: the setting of the second port.

    Raises:
        SettingsError: names both.
    """
    port = getattr(settings, name)
    if port == (settings.http_port or DEFAULT_PORTS[worker]):
        raise SettingsError(
            f"{name} is {port}, where the {worker}'s health and metrics are (http_port): give each "
            "a port of its own"
        )


class WorkerService(Service, ABC):  # type: ignore[misc]  # mode is untyped
    """The life of a worker: topics checked, parts opened, loops run until the stop, parts closed.

    A loop that raises ends the process with the reason logged; whoever supervises it starts it
    again, and it resumes from its durable positions.
    """

    database_user: str | None = None
    """The worker's name, as the database knows it; None: it uses none."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.clock = settings.clock()
        self.stopping = asyncio.Event()
        self.broker = BrokerWatch(settings, end_now)
        self.clock_offset = ClockOffset(settings, _begin_anew)
        self.tracing: Tracing | None = None
        """Of a worker that pages' traces go through; None: it is off."""
        self._loops: list[asyncio.Future[Any]] = []
        self._watching: list[asyncio.Future[Any]] = []
        self._no_topics: str | None = None
        """Why the start waits for the topics; None: it does not."""

    @abstractmethod
    async def open(self) -> None:
        """Connect and load; the topics are there."""

    @abstractmethod
    async def close(self) -> None:
        """Disconnect; the loops have ended. Also called where `open` failed half-way."""

    @abstractmethod
    def loops(self) -> list[Coroutine[Any, Any, None]]:
        """What runs until `self.stopping` is set; each finishes what it has at hand."""

    @abstractmethod
    def not_ready(self) -> str | None:
        """Why the worker cannot do its work now; None: it can."""

    @abstractmethod
    def progressed_at(self) -> float:
        """Wall (monotonic) time of the last sign of life of the slowest loop."""

    async def on_start(self) -> None:
        """Open the parts and start the loops; the servers are watched from the beginning on."""
        Watchdog(self).start()
        self.broker.topics_are_there = False
        self._watching = [self.add_future(watch) for watch in self._watches()]
        try:
            await self._have_topics()
            await self.clock_offset.start()
            await self.open()
        except Exception:
            if not self.stopping.is_set():
                raise
            return  # it was told to stop while it waited for a server, which is no failure
        spare_collector()
        self._loops = [
            self.add_future(coroutine)
            for coroutine in (
                *self.loops(),
                watch_loop_lag(self.stopping, self.settings.loop_lag_warning_seconds),
                self.clock_offset.run(self.stopping),
            )
        ]
        log.info("worker started")

    async def _have_topics(self) -> None:
        """Wait for a broker, however long it is away: who gave up would only be started again."""
        async for attempt in until_it_passes(self.stopping, may_pass, self._note_no_topics):
            with attempt:
                await ensure_topics(self.settings, patience_seconds=0.0)
        self.broker.topics_are_there, self._no_topics = True, None

    def _note_no_topics(self, error: BaseException) -> None:
        reason = f"the topics cannot be looked at: {str(error) or type(error).__name__}"
        if reason != self._no_topics:
            log.warning("the start waits for the topics", reason=reason)
        self._no_topics = reason

    def _watches(self) -> list[Coroutine[Any, Any, None]]:
        """Whether the servers answer."""
        watches = [self.broker.run(self.stopping)]
        if self.database_user is not None:
            # Here, as the ingester starts without a database's driver.
            from shared.runtime.database_watch import DatabaseWatch  # noqa: PLC0415

            for database in databases_of(self.settings).each:
                settings = at_database(self.settings, database)
                watches.append(DatabaseWatch(settings, self.database_user).run(self.stopping))
        return watches

    async def on_stop(self) -> None:
        """Let the loops finish what they have at hand, then close."""
        self.stopping.set()
        if self._loops:
            await asyncio.wait(self._loops, timeout=STOP_SECONDS)
        await end(*self._watching)
        await self.close()
        await self.clock_offset.stop()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)
        log.info("worker stopped")

    def take_settings(self, settings: Settings) -> None:
        """Let settings hold that were read again: those of `reloading.RELOADED` may be others.

        Raises:
            SettingsError: they contradict each other; then nothing has changed.
        """
        self.settings = settings

    def trouble(self) -> str | None:
        """Why the worker is not ready; None: it is.

        Without a broker it has no group either, and no partitions.
        """
        return self.broker.trouble or self._no_topics or WRITES.trouble or self.not_ready()

    def silent_seconds(self) -> float:
        """Wall seconds since the last sign of life. Waiting for a broker that is away is one, or
        for its acknowledgement.

        So is the start, which takes as long as the servers and the loading do.
        """
        if not self._loops:
            return 0.0
        waited_at = max(self.broker.away_at, WRITES.refused_at)
        return time.monotonic() - max(self.progressed_at(), waited_at)


def spare_collector() -> None:
    """Keep Python's garbage collector from looking through all that the start has loaded.

    Modules and compiled code stay for ever. A look through them stops every thread for over a
    hundred milliseconds (measured), in the middle of a batch.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)


class Watchdog(threading.Thread):
    """Ends the process when the worker shows no sign of life; a thread, as the loop may hang."""

    def __init__(self, service: WorkerService) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._service = service

    def run(self) -> None:
        """Look again and again until the worker stops, and see to it that it does stop."""
        patience = self._service.settings.stall_seconds
        while not self._service.stopping.is_set():
            time.sleep(LOOK_SECONDS)
            silence = self._service.silent_seconds()
            if silence > patience:
                self._end(
                    "no progress: the worker ends itself to be restarted",
                    silent_seconds=round(silence, 1),
                    stall_seconds=patience,
                )
        # A daemon's thread: it is gone as soon as the process has ended.
        time.sleep(STOP_LIMIT_SECONDS)
        self._end("the stop takes too long and is cut off", stop_seconds=STOP_LIMIT_SECONDS)

    @staticmethod
    def _end(reason: str, **more: float) -> None:
        # Where each thread stands: whoever reads the log sees what hangs.
        faulthandler.dump_traceback(sys.stderr, all_threads=True)
        end_now(reason, **more)


def end_now(reason: str, **more: float) -> None:
    """End the process without another step, to be started again; nothing waiting is sent."""
    log.critical(reason, **more)
    sys.stderr.flush()
    os._exit(EXIT_STALLED)


def _begin_anew(seconds: float) -> None:
    end_now("the broker's time went back: the worker ends itself to be restarted", by=seconds)


class _WithoutFaustConsumer(BootStrategy):  # type: ignore[misc]
    """Faust without its own Kafka clients: no worker has agents (see above)."""

    enable_kafka = False


class _App(faust.App):  # type: ignore[misc]
    BootStrategy = _WithoutFaustConsumer
    take_settings: Callable[[Settings], None]
    """Of the worker's service."""

    def _new_web(self) -> WebServer:
        return WebServer(self)


def make_app(name: str, service: WorkerService) -> faust.App:
    """A Faust app around a worker's service, with `/healthz`, `/readyz` and `/metrics`.

    Args:
        name: the worker's name.
        service: what it does.
    """
    settings = service.settings
    host, port = settings.http_host, settings.http_port or DEFAULT_PORTS[name]
    app = _App(
        f"{settings.topic_prefix}freshet-{name}",
        # Faust makes an address of it.
        web_host=f"[{host}]" if ":" in host else host,
        web_bind=host,
        web_port=port,
        web_application_options=web_options(host, port),
        # Faust's own pages about tables and routing, which we do not have.
        web_router_enabled=False,
        web_tables_enabled=False,
        datadir=tempfile.gettempdir(),
        autodiscover=False,
        topic_disable_leader=True,
        topic_allow_declare=False,
        consumer_auto_offset_reset="earliest",
        value_serializer="raw",
        key_serializer="raw",
        store="memory://",
    )
    app.service(service)
    app.take_settings = service.take_settings
    _add_pages(app, service)
    return app


def _add_pages(app: faust.App, service: WorkerService) -> None:
    @app.page("/healthz")  # type: ignore[untyped-decorator]
    async def healthz(_web: Any, _request: Any) -> Response:
        return Response(text="ok\n")

    @app.page("/readyz")  # type: ignore[untyped-decorator]
    async def readyz(_web: Any, _request: Any) -> Response:
        reason = service.trouble()
        return Response(text=f"{reason or 'ready'}\n", status=503 if reason else 200)

    @app.page("/metrics")  # type: ignore[untyped-decorator]
    async def exposition(_web: Any, _request: Any) -> Response:
        metrics.NOT_READY.set(service.trouble() is not None)
        return Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


class _Worker(faust.Worker):  # type: ignore[misc]  # faust is untyped
    reloading: Reloading

    def install_signal_handlers(self) -> None:
        super().install_signal_handlers()
        self.loop.add_signal_handler(signal.SIGHUP, self.reloading.reload)

    def on_worker_shutdown(self) -> None:
        super().on_worker_shutdown()
        ignore_further_stops(self.loop)


def run_app(name: str, app: faust.App, settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT; exits with a code that says whether it failed.

    On SIGHUP it reads its settings again.
    """
    configure_logs(settings.log_format, settings.log_level, worker=name, instance=settings.instance)
    worker = _Worker(
        app,
        quiet=True,
        override_logging=False,
        redirect_stdouts=False,
        blocking_timeout=0,
        loglevel=settings.log_level.upper(),
    )
    worker.reloading = Reloading(settings, app.take_settings)
    # The spinner writes control codes into the logs.
    worker.spinner = None
    with naming_faults():
        worker.execute_from_commandline()
