"""However a demonstration ends, nothing of it is left running."""

import asyncio
import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest

from deploy.local.process import StartError
from services.demo import session
from services.demo.session import Demo
from services.demo.system import DemoOptions
from services.run.errors import RunFailed


class Servers:
    """Those that do not start; Ctrl-C comes while what there is of them is stopped."""

    logs = Path("logs")

    def __init__(self):
        self.are_stopped = False

    def locked(self):
        return nullcontext()

    async def start_servers(self):
        raise StartError("there is no room")

    async def stop(self):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0.05)
        self.are_stopped = True


class System:
    copies = Path("copies")

    def __init__(self, options):
        self.stack = Servers()


async def test_ctrl_c_does_not_keep_a_failed_start_from_being_cleared_away(monkeypatch):
    monkeypatch.setattr(session, "DemoSystem", System)
    demo = Demo(DemoOptions(Path("data"), 10.0, 1, 1, 1.0, 1), lambda _: None)
    with pytest.raises(RunFailed, match="no room"):
        await demo.run(lambda _: None)
    assert demo.system.stack.are_stopped
