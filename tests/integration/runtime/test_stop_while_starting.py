"""A worker that is told to stop while it starts does not go on until the start is over."""

import asyncio
import signal
import subprocess
import sys
import time
from typing import Any

import pytest

from deploy.local.process import free_port
from shared.runtime import worker
from shared.runtime.settings import load_settings
from shared.runtime.worker import EXIT_STALLED, WorkerService, make_app, run_app

OPENING = "opening"
ENDLESS_SECONDS = 600.0


class Slow(WorkerService):
    """Compiles for ever."""

    async def open(self) -> None:
        """Hang in a thread, which cannot be cancelled."""
        sys.stdout.write(f"{OPENING}\n")
        sys.stdout.flush()
        await asyncio.to_thread(time.sleep, ENDLESS_SECONDS)

    async def close(self) -> None:
        """Nothing to do."""

    def loops(self) -> list[Any]:
        """None."""
        return []

    def not_ready(self) -> str | None:
        """Ready."""
        return None

    def progressed_at(self) -> float:
        """Now."""
        return time.monotonic()


async def _without_a_broker(*_: object, **__: object) -> None:
    pass


def run() -> None:
    """The process of the test below."""
    worker.ensure_topics = _without_a_broker
    settings = load_settings(http_port=free_port())
    run_app("ingester", make_app("ingester", Slow(settings)), settings)


@pytest.mark.slow(5)
def test_a_stop_cuts_the_start_off():
    code = "import test_stop_while_starting as test; test.run()"
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().decode().strip() == OPENING
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=ENDLESS_SECONDS / 10)
    finally:
        process.kill()
    assert process.returncode == EXIT_STALLED
    assert b"the stop takes too long" in errors
