"""The watchdog ends what hangs, says why and where, and leaves alone what waits for good reason."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from shared.runtime import loop_lag, metrics, worker
from shared.runtime.loop_lag import watch_loop_lag
from shared.runtime.settings import Settings
from shared.runtime.worker import EXIT_STALLED, Watchdog


class Ended(Exception):
    """The process is gone."""


@pytest.fixture
def watched(monkeypatch):
    """Runs the watchdog over signs of life until it ends the process; gives its last words."""
    times = []

    def end(code):
        raise Ended(code)

    monkeypatch.setattr(worker.os, "_exit", end)
    monkeypatch.setattr(worker.time, "sleep", times.append)

    def watch(silences, stall_seconds=5.0):
        left = iter(silences)
        stopping = threading.Event()

        def silent_seconds():
            silence = next(left, None)
            if silence is None:
                stopping.set()
                return 0.0
            return silence

        service = SimpleNamespace(
            settings=Settings(stall_seconds=stall_seconds),
            stopping=stopping,
            silent_seconds=silent_seconds,
        )
        with capture_logs() as logs, pytest.raises(Ended, match=str(EXIT_STALLED)):
            Watchdog(service).run()
        return logs[-1], times

    return watch


def test_a_silent_worker_is_ended(watched, capfd):
    last, _ = watched([0.0, 4.9, 5.1])
    assert (last["log_level"], last["silent_seconds"]) == ("critical", 5.1)
    assert "no progress" in last["event"]
    assert "test_watchdog.py" in capfd.readouterr().err


def test_a_stop_that_hangs_is_cut_off(watched):
    last, times = watched([0.0, 0.0])
    assert "the stop takes too long" in last["event"]
    assert times[-1] == worker.STOP_LIMIT_SECONDS < 10.0


async def test_a_blocked_loop_is_measured_and_warned_of(monkeypatch):
    monkeypatch.setattr(loop_lag, "LAG_PROBE_SECONDS", 0.01)
    stopping = asyncio.Event()
    with capture_logs() as logs:
        watching = asyncio.create_task(watch_loop_lag(stopping, warning_seconds=0.1))
        await asyncio.sleep(0.05)
        worker.time.sleep(0.3)
        await asyncio.sleep(0.05)
        stopping.set()
        await watching
    warned = [entry for entry in logs if entry["event"] == "the event loop was blocked"]
    assert warned
    assert metrics.LOOP_LAG_MAX_SECONDS._value.get() >= max(e["seconds"] for e in warned) - 0.001
