"""The world's HTTP port: its status as JSON, for the pictures, and whether it is ready."""

import json
from collections.abc import Callable
from typing import Any

from aiohttp import web

from shared.runtime.settings import Settings

DEFAULT_PORT = 6070

_FROM_ANY_PAGE = {"Access-Control-Allow-Origin": "*"}
"""The coordinator's page, on another port, reads the status; there is no secret in it."""


class StatusPage:
    """`/status`, `/readyz` and `/healthz` on the configured host and port."""

    def __init__(
        self, settings: Settings, status: Callable[[], dict[str, Any]], ready: Callable[[], bool]
    ) -> None:
        self._settings = settings
        self._status = status
        self._ready = ready
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application()
        app.router.add_get("/status", self._answer_status)
        app.router.add_get("/readyz", self._answer_ready)
        app.router.add_get("/healthz", self._answer_health)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        port = self._settings.http_port or DEFAULT_PORT
        await web.TCPSite(self._runner, self._settings.http_host, port).start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _answer_status(self, _request: web.Request) -> web.Response:
        text = json.dumps(self._status(), allow_nan=False)
        return web.Response(text=text, content_type="application/json", headers=_FROM_ANY_PAGE)

    async def _answer_ready(self, _request: web.Request) -> web.Response:
        ready = self._ready()
        return web.Response(
            text="ready\n" if ready else "waiting for partitions\n", status=200 if ready else 503
        )

    async def _answer_health(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")
