"""The pictures of the documentation, drawn and taken by this script.

``python -m deploy.docs.pictures DIR`` writes them all. The screenshot needs Chromium, and starts
`freshet run` for a minute; with ``--only system.svg`` neither is needed.
"""

import argparse
import asyncio
import re
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.docs import system
from deploy.docs.browser import screenshot

WIDTH: Final = 1180
HEIGHT: Final = 860
"""Of the screenshot, pixels: the tiles, the curves, and the first shards."""

RUN: Final = ("--crawls-per-day", "2000", "--bandwidth-at", "7:4000", "--days", "30", "--no-view")
"""A run whose budget is doubled while somebody looks."""

LOOK_SECONDS: Final = 45.0

_ADDRESS = re.compile(r"see (http://\S+)")


def coordinator() -> bytes:
    """The coordinator's page during a run, as a PNG file.

    Raises:
        RunFailed: the run did not start; its last lines are in the text.
        BrowserUnavailable: there is no Chromium here.
    """
    with tempfile.TemporaryDirectory(prefix="freshet-picture-") as folder:
        Path(folder).chmod(0o711)  # Where this is root's, PostgreSQL runs as another account.
        return asyncio.run(_coordinator(folder))


class RunFailed(Exception):
    """`freshet run` ended before it was up; the text is what it said."""


async def _coordinator(folder: str) -> bytes:
    command = (sys.executable, "-m", "services.cli.main", "run", *RUN, "--data-dir", folder)
    run = await asyncio.create_subprocess_exec(*command, stderr=PIPE)
    try:
        return await screenshot(await _address(run), LOOK_SECONDS, WIDTH, HEIGHT)
    finally:
        if run.returncode is None:
            run.send_signal(signal.SIGINT)
        await run.communicate()


async def _address(run: Process) -> str:
    """Where the run's page is, as soon as the run says so."""
    said = []
    while run.stderr is not None and (line := (await run.stderr.readline()).decode()):
        said.append(line)
        found = _ADDRESS.search(line)
        if found:
            return found[1]
    raise RunFailed("".join(said))


PICTURES: dict[str, Callable[[], bytes]] = {
    "system.svg": system.draw,
    "coordinator.png": coordinator,
}
"""File name → what makes it."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pictures to the folder named in ``arguments`` (the command line's by default)."""
    parser = argparse.ArgumentParser(prog="python -m deploy.docs.pictures", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="where to write them")
    parser.add_argument("--only", choices=PICTURES, help="this one alone")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    for name in [given.only] if given.only else PICTURES:
        (given.folder / name).write_bytes(PICTURES[name]())


if __name__ == "__main__":
    main()
