"""Pages as somebody sees and uses them: a window of Chromium, by its DevTools protocol."""

import asyncio
import base64
import json
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse
from tools import NO_TOOL

from deploy.docs.browser import NAMES, browser, call

PATIENCE_SECONDS = 60.0
_KEYS = {"Tab": 9, "Enter": 13}


class Window:
    """One window, on one page after the other."""

    def __init__(self, socket: ClientWebSocketResponse) -> None:
        self._socket = socket

    async def see(self, width: int, height: int, *, dark: bool = False) -> None:
        """Be so large, and light or dark as its user likes."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        await self._call("Emulation.setDeviceMetricsOverride", **size)
        liking = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        await self._call("Emulation.setEmulatedMedia", features=liking)

    async def go(self, url: str) -> None:
        """Show a page, and wait until it is there and looks nothing up any more."""
        await self._call("Page.navigate", url=url)
        await self.until(
            f"location.href === {json.dumps(url)} && document.readyState === 'complete' && "
            "!document.querySelector('[aria-busy]')"
        )

    async def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript."""
        answer = await self._call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true; while a page changes it has no value."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            answer = await self._call("Runtime.evaluate", expression=expression)
            if answer["result"].get("value") is True:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"never: {expression}: {await self.ask('document.body.innerText')}")

    async def press(self, key: str) -> None:
        """Press Tab or Enter."""
        code = {"key": key, "code": key, "windowsVirtualKeyCode": _KEYS[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        await self._call("Input.dispatchKeyEvent", type="keyDown", **code, **text)
        await self._call("Input.dispatchKeyEvent", type="keyUp", **code)

    async def write(self, text: str) -> None:
        """Write where the cursor is."""
        await self._call("Input.insertText", text=text)

    async def picture(self) -> bytes:
        """What it shows, as a PNG."""
        shown = await self._call("Page.captureScreenshot", format="png")
        return base64.b64decode(shown["data"])

    async def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return await call(self._socket, method, parameters)


def need_chromium() -> None:
    """Skip the test where there is no Chromium."""
    if not any(map(shutil.which, NAMES)):
        pytest.skip(f"{NO_TOOL}chromium (Debian: apt install chromium)")


@asynccontextmanager
async def chromium() -> AsyncIterator[Window]:
    """A window."""
    with tempfile.TemporaryDirectory("-browser", "freshet", ignore_cleanup_errors=True) as folder:
        async with browser(Path(folder), 1180, 860) as address, ClientSession() as session:
            async with session.put(f"{address}/json/new?about:blank") as answer:
                tab = await answer.json(content_type=None)
            socket = tab["webSocketDebuggerUrl"]
            async with session.ws_connect(socket, max_msg_size=0) as connected:
                yield Window(connected)
