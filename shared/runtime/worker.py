"""What all workers are: a Faust app with a web server, health, metrics and a watchdog.

Faust brings the life cycle, signals, the web server and agents for the quiet topics; the busy
topics go past it through `BatchConsumer`, a hundred times faster (see the architecture).
"""

import asyncio
import os
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Any

import faust
import structlog
from aiohttp.web import Response
from faust.app.base import BootStrategy
from mode import Service
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from shared.runtime import metrics
from shared.runtime.kafka import client_options, ensure_topics
from shared.runtime.logs import configure_logs
from shared.runtime.settings import Settings

log = structlog.get_logger(__name__)

EXIT_STALLED = 70
"""Exit code of a worker that ended itself because it made no progress."""

STOP_SECONDS = 8.0
"""The batch at hand is given so long to finish on SIGTERM; the whole stop takes under ten."""

LAG_PROBE_SECONDS = 0.1

DEFAULT_PORTS = {"ingester": 6066, "scheduler": 6067, "estimator": 6068, "coordinator": 6069}


class WorkerService(Service, ABC):  # type: ignore[misc]  # mode is untyped
    """The life of a worker: topics checked, parts opened, loops run until the stop, parts closed.

    A loop that raises ends the process with the reason logged; whoever supervises it starts it
    again, and it resumes from its durable positions.
    """

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.settings = settings
        self.clock = settings.clock()
        self.stopping = asyncio.Event()
        self._loops: list[asyncio.Future[Any]] = []

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
        """Open the parts and start the loops."""
        await ensure_topics(self.settings)
        await self.open()
        self._loops = [
            self.add_future(coroutine) for coroutine in [*self.loops(), self._watch_loop_lag()]
        ]
        Watchdog(self).start()
        log.info("worker started")

    async def on_stop(self) -> None:
        """Let the loops finish what they have at hand, then close."""
        self.stopping.set()
        if self._loops:
            await asyncio.wait(self._loops, timeout=STOP_SECONDS)
        await self.close()
        log.info("worker stopped")

    async def _watch_loop_lag(self) -> None:
        while not self.stopping.is_set():
            before = time.perf_counter()
            await asyncio.sleep(LAG_PROBE_SECONDS)
            lag = time.perf_counter() - before - LAG_PROBE_SECONDS
            metrics.LOOP_LAG_SECONDS.observe(max(lag, 0.0))


class Watchdog(threading.Thread):
    """Ends the process when the worker shows no sign of life; a thread, as the loop may hang."""

    def __init__(self, service: WorkerService) -> None:
        super().__init__(name="watchdog", daemon=True)
        self._service = service

    def run(self) -> None:
        """Look every second until the worker stops."""
        patience = self._service.settings.stall_seconds
        while not self._service.stopping.is_set():
            time.sleep(1.0)
            silence = time.monotonic() - self._service.progressed_at()
            if silence > patience:
                log.critical(
                    "no progress: the worker ends itself to be restarted",
                    silent_seconds=round(silence, 1),
                    stall_seconds=patience,
                )
                sys.stderr.flush()
                os._exit(EXIT_STALLED)


class _WithoutFaustConsumer(BootStrategy):  # type: ignore[misc]
    """Faust without its own Kafka clients: for workers that have no agents."""

    enable_kafka = False


class _App(faust.App):  # type: ignore[misc]
    BootStrategy = _WithoutFaustConsumer


class _AppWithAgents(faust.App):  # type: ignore[misc]
    """Agents read their quiet topics; nothing goes through Faust's producer or tables."""


def _faust_credentials(settings: Settings) -> Any:
    options = client_options(settings)
    if "sasl_mechanism" in options:
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=options["ssl_context"],
        )
    context = options["ssl_context"]
    return faust.SSLCredentials(context) if context is not None else None


def make_app(
    name: str, service: WorkerService, *, agents: bool = False, group: str | None = None
) -> faust.App:
    """A Faust app around a worker's service, with `/healthz`, `/readyz` and `/metrics`.

    Args:
        name: the worker's name.
        service: what it does.
        agents: whether Faust's own consumer is started for agents on the quiet topics.
        group: consumer group of those agents.
    """
    settings = service.settings
    kind = _AppWithAgents if agents else _App
    app = kind(
        group or f"{settings.topic_prefix}freshet-{name}",
        broker=[f"kafka://{server}" for server in settings.kafka_bootstrap_servers.split(",")],
        broker_credentials=_faust_credentials(settings),
        web_host=settings.http_host,
        web_bind=settings.http_host,
        web_port=settings.http_port or DEFAULT_PORTS[name],
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
    _add_pages(app, service)
    return app


def _add_pages(app: faust.App, service: WorkerService) -> None:
    @app.page("/healthz")  # type: ignore[untyped-decorator]
    async def healthz(_web: Any, _request: Any) -> Response:
        return Response(text="ok\n")

    @app.page("/readyz")  # type: ignore[untyped-decorator]
    async def readyz(_web: Any, _request: Any) -> Response:
        reason = service.not_ready()
        return Response(text=f"{reason or 'ready'}\n", status=503 if reason else 200)

    @app.page("/metrics")  # type: ignore[untyped-decorator]
    async def exposition(_web: Any, _request: Any) -> Response:
        return Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})


def run_app(name: str, app: faust.App, settings: Settings) -> None:
    """Run a worker until SIGTERM or SIGINT; exits with a code that says whether it failed."""
    configure_logs(settings.log_format, settings.log_level, worker=name, instance=settings.instance)
    worker = faust.Worker(
        app,
        quiet=True,
        override_logging=False,
        redirect_stdouts=False,
        blocking_timeout=0,
        loglevel=settings.log_level.upper(),
    )
    # The spinner writes control codes into the logs.
    worker.spinner = None
    worker.execute_from_commandline()
