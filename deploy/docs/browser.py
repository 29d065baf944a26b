"""A picture of a web page as a browser shows it, by Chromium's DevTools protocol."""

import asyncio
import base64
import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import ClientSession, ClientWebSocketResponse

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
"""Programs that are one, the first that is there."""

_START_SECONDS: Final = 30.0
_MOST_BYTES: Final = 32 * 1024 * 1024


class BrowserUnavailable(Exception):
    """There is no Chromium here, or it does not start; the text says which."""


async def screenshot(url: str, seconds: float, width: int, height: int) -> bytes:
    """A PNG file of a page that has been looked at for so long.

    Args:
        url: of the page.
        seconds: how long it is open before; a page that draws as it goes has so much to show.
        width: of the window, pixels.
        height: of the window, pixels.

    Raises:
        BrowserUnavailable: there is no Chromium here, or it does not start.
    """
    # Its child processes may write for a moment after they were told to end.
    with tempfile.TemporaryDirectory("-browser", "freshet", ignore_cleanup_errors=True) as folder:
        async with browser(Path(folder), width, height) as address, ClientSession() as session:
            async with session.put(f"{address}/json/new?{url}") as answer:
                tab = await answer.json(content_type=None)
            socket = tab["webSocketDebuggerUrl"]
            async with session.ws_connect(socket, max_msg_size=_MOST_BYTES) as page:
                await asyncio.sleep(seconds)
                shown = await call(page, "Page.captureScreenshot", {"format": "png"})
    return base64.b64decode(shown["data"])


@asynccontextmanager
async def browser(folder: Path, width: int, height: int) -> AsyncIterator[str]:
    """A headless browser; yields the address of its DevTools, on loopback.

    Args:
        folder: for what it keeps.
        width: of a window, pixels.
        height: of a window, pixels.

    Raises:
        BrowserUnavailable: there is no Chromium here, or it does not start.
    """
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        raise BrowserUnavailable("there is no Chromium: install it (Debian: apt install chromium)")
    process = await asyncio.create_subprocess_exec(
        program,
        "--headless=new",
        "--no-sandbox",  # It sees nothing but our own page.
        "--disable-gpu",
        "--hide-scrollbars",
        "--remote-debugging-port=0",
        f"--user-data-dir={folder}",
        f"--window-size={width},{height}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield f"http://127.0.0.1:{await _port(folder / 'DevToolsActivePort')}"
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        await process.wait()


async def _port(file: Path) -> int:
    """The port that the browser has written down, as soon as it has."""
    for _ in range(int(_START_SECONDS * 10)):
        written = _written(file)
        if written:
            return int(written.split()[0])
        await asyncio.sleep(0.1)
    raise BrowserUnavailable(f"Chromium did not start within {_START_SECONDS:g} s")


def _written(file: Path) -> str:
    return file.read_text() if file.exists() else ""


async def call(
    page: ClientWebSocketResponse, method: str, parameters: dict[str, Any]
) -> dict[str, Any]:
    """What a method of the protocol answers.

    Raises:
        BrowserUnavailable: it cannot; the text says why.
    """
    await page.send_json({"id": 1, "method": method, "params": parameters})
    while True:
        answer = await page.receive_json()
        if answer.get("id") == 1:
            if "error" in answer:
                raise BrowserUnavailable(f"{method}: {answer['error']['message']}")
            result: dict[str, Any] = answer["result"]
            return result
