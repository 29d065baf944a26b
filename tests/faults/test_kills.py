"""Parts of a running system are killed, stopped, paused and restarted; nothing is lost or doubled.

Every run is a whole system as `freshet run` starts it. What is promised is checked afterwards on
the records of the topics and the pages in Postgres (see `ledger`).
"""

import asyncio
import signal
from pathlib import Path

import pytest
from ledger import Ledger, settled
from live_run import WORKERS, LiveRun, live_run, why_not

PAUSE_SECONDS = 3.0


async def nothing_is_lost_or_doubled(run: LiveRun) -> None:
    await settled(run)
    ledger = await Ledger.of(run)
    report = await asyncio.to_thread(run.end)
    assert len(ledger.requests) > 100
    assert ledger.crawls_not_applied_once() == []
    assert ledger.in_flight_twice() == []
    assert ledger.unanswered() == []
    assert ledger.seconds_over_budget() == {}
    assert ledger.on_wrong_partitions() == []
    assert ledger.signals_lost() == set()
    assert report["dead_letters"] == 0
    assert report["answered_twice"] == 0


async def replaced(run: LiveRun, name: str, how: signal.Signals) -> None:
    """End a process, and wait until another does its work and the crawls go on."""
    before = run.pid(name)
    run.send(name, how)
    await run.comes_back(name, before)
    await run.back_at_its_budget()


async def test_workers_that_are_killed_are_replaced(tmp_path: Path) -> None:
    async with live_run(tmp_path) as run:
        for name in WORKERS:
            await replaced(run, name, signal.SIGKILL)
        await nothing_is_lost_or_doubled(run)


async def test_a_scheduler_that_is_stopped_or_paused_goes_on(tmp_path: Path) -> None:
    async with live_run(tmp_path) as run:
        await replaced(run, "scheduler", signal.SIGTERM)
        assert "worker stopped" in run.log("scheduler")
        run.send("scheduler", signal.SIGSTOP)
        await asyncio.sleep(PAUSE_SECONDS)
        run.send("scheduler", signal.SIGCONT)
        await run.back_at_its_budget()
        await nothing_is_lost_or_doubled(run)


async def test_servers_that_go_away_are_started_again(tmp_path: Path) -> None:
    async with live_run(tmp_path) as run:
        await replaced(run, "broker", signal.SIGKILL)
        await replaced(run, "postgres", signal.SIGINT)
        await replaced(run, "postgres", signal.SIGQUIT)
        await nothing_is_lost_or_doubled(run)


async def test_all_workers_at_once_on_apache_kafka(tmp_path: Path) -> None:
    reason = why_not("apache")
    if reason is not None:
        pytest.skip(f"Apache Kafka cannot run here: {reason}")
    async with live_run(tmp_path, "apache") as run:
        before = {name: run.pid(name) for name in WORKERS}
        for name in WORKERS:
            run.send(name, signal.SIGKILL)
        for name in WORKERS:
            await run.comes_back(name, before[name])
        await run.back_at_its_budget()
        await nothing_is_lost_or_doubled(run)
