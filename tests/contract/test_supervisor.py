"""The supervisor starts in order, restarts the dead, and leaves no process behind."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from deploy.local.process import StartError, free_port
from deploy.local.supervisor import STOP_SECONDS, ChildSpec, ChildState, Supervisor

SLEEPER = "import time; time.sleep(600)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid, flush=True)
time.sleep(600)
"""
KILLED_SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from deploy.local.supervisor import ChildSpec, Supervisor
async def main():
    supervisor = Supervisor(Path(sys.argv[1]))
    await supervisor.start([ChildSpec(name="child", argv=[sys.executable, "-c", sys.argv[2]])])
    print(supervisor.children()[0].pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def python(name: str, code: str, **options) -> ChildSpec:
    return ChildSpec(name=name, argv=[sys.executable, "-c", code], **options)


def running(pid: int | None) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def until(condition) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def test_each_child_starts_when_the_one_before_is_ready(tmp_path: Path):
    order: list[str] = []
    supervisor = Supervisor(tmp_path)

    def ready(name: str):
        def answer() -> bool:
            order.append(name)
            return order.count(name) > 2

        return answer

    specs = [python(name, SLEEPER, ready=ready(name)) for name in ("one", "two")]
    await supervisor.start(specs)
    assert order == ["one"] * 3 + ["two"] * 3
    assert [child.state for child in supervisor.children()] == [ChildState.RUNNING] * 2
    pids = [child.pid for child in supervisor.children()]
    await supervisor.stop()
    assert not any(map(running, pids))
    assert [child.state for child in supervisor.children()] == [ChildState.STOPPED] * 2


@pytest.mark.slow(1)
async def test_a_child_is_ready_when_its_address_answers(tmp_path: Path):
    (tmp_path / "readyz").write_text("ready")
    port = free_port()
    argv = [sys.executable, "-m", "http.server", str(port), "-b", "127.0.0.1", "-d", str(tmp_path)]
    supervisor = Supervisor(tmp_path)
    missing = ChildSpec(
        name="web", argv=argv, ready=f"http://127.0.0.1:{port}/missing", ready_seconds=1.0
    )
    with pytest.raises(StartError, match="not ready"):
        await supervisor.start([missing])
    supervisor = Supervisor(tmp_path)
    await supervisor.start(
        [ChildSpec(name="web", argv=argv, ready=f"http://127.0.0.1:{port}/readyz")]
    )
    assert supervisor.children()[0].state is ChildState.RUNNING
    await supervisor.stop()


@pytest.mark.slow(0.5)
async def test_a_child_that_dies_is_started_again(tmp_path: Path):
    supervisor = Supervisor(tmp_path)
    await supervisor.start([python("child", SLEEPER)])
    os.kill(supervisor.children()[0].pid, signal.SIGKILL)
    await until(lambda: supervisor.children()[0].restarts == 1)
    await until(lambda: supervisor.children()[0].state is ChildState.RUNNING)
    assert running(supervisor.children()[0].pid)
    await supervisor.stop()


async def test_a_child_that_never_gets_ready_says_why(tmp_path: Path):
    supervisor = Supervisor(tmp_path)
    broken = python("broken", "print('no database'); raise SystemExit(3)", ready=lambda: False)
    with pytest.raises(StartError, match="no database"):
        await supervisor.start([python("fine", SLEEPER), broken])
    assert [child.pid for child in supervisor.children()] == [None, None]


@pytest.mark.slow(3)
async def test_stubborn_children_and_their_children_are_killed(tmp_path: Path):
    supervisor = Supervisor(tmp_path)
    await supervisor.start([python("parent", PARENT), python("stubborn", STUBBORN)])
    log = tmp_path / "logs" / "parent.log"
    await until(log.read_text)
    await asyncio.sleep(0.3)  # the stubborn one needs a moment to stop listening
    pids = [int(log.read_text()), *(child.pid for child in supervisor.children())]
    assert all(map(running, pids))
    await asyncio.wait_for(supervisor.stop(), 2 * STOP_SECONDS)
    await until(lambda: not any(map(running, pids)))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of a parent's death")
def test_no_child_outlives_a_killed_supervisor(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED_SUPERVISOR, str(tmp_path), STUBBORN],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    lines = iter(process.stdout.readline, "")
    pid = int(next(line for line in lines if line.strip().isdigit()))
    assert running(pid)
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 30
    while running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not running(pid)
