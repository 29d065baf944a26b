"""Parts of a running system are killed, stopped, paused and restarted; nothing is lost or doubled.

One whole system runs as `freshet run` starts it, and is harmed again and again. What is promised is
checked after each harm on all records of the topics and the pages in Postgres (see `ledger`).
"""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledger import Ledger, settled
from live_run import CRAWLS_PER_DAY, WORKERS, LiveRun, live_run, why_not

PAUSE_SECONDS = 3.0


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveRun]:
    """A run for all tests of a process."""
    folder = tmp_path_factory.mktemp("kills")
    run = LiveRun(folder, "local")
    try:
        yield run
    finally:
        run.close()


@pytest.fixture
async def run(shared_run: LiveRun) -> LiveRun:
    """The run, at its budget."""
    if shared_run.crawls_per_day != CRAWLS_PER_DAY:
        await shared_run.set_budget(CRAWLS_PER_DAY)
    await shared_run.is_steady()
    return shared_run


async def nothing_is_lost_or_doubled(run: LiveRun) -> None:
    await settled(run)
    ledger = await Ledger.of(run)
    assert len(ledger.requests) > 100
    assert ledger.crawls_not_applied_once() == []
    assert ledger.in_flight_twice() == []
    assert ledger.unanswered() == []
    assert ledger.answered_twice() == []
    assert ledger.seconds_over_budget() == {}
    assert ledger.on_wrong_partitions() == []
    assert ledger.signals_lost() == set()
    assert run.status()["dead_letters"] == 0


async def replaced(run: LiveRun, name: str, how: signal.Signals) -> None:
    """End a process, and wait until another does its work and the crawls go on."""
    before = run.pid(name)
    run.send(name, how)
    await run.comes_back(name, before)
    await run.back_at_its_budget()


@pytest.mark.parametrize("name", WORKERS)
async def test_a_killed_worker_is_replaced(run: LiveRun, name: str) -> None:
    await replaced(run, name, signal.SIGKILL)
    await nothing_is_lost_or_doubled(run)


async def test_a_scheduler_that_is_told_to_stop_is_replaced(run: LiveRun) -> None:
    await replaced(run, "scheduler", signal.SIGTERM)
    assert "worker stopped" in run.log("scheduler")
    await nothing_is_lost_or_doubled(run)


async def test_a_paused_scheduler_makes_up_for_nothing(run: LiveRun) -> None:
    run.send("scheduler", signal.SIGSTOP)
    await asyncio.sleep(PAUSE_SECONDS)
    run.send("scheduler", signal.SIGCONT)
    await run.back_at_its_budget()
    await nothing_is_lost_or_doubled(run)


async def test_a_killed_broker_is_started_again(run: LiveRun) -> None:
    await replaced(run, "broker", signal.SIGKILL)
    await nothing_is_lost_or_doubled(run)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["fast", "at once"])
async def test_a_database_that_went_away_is_started_again(
    run: LiveRun, how: signal.Signals
) -> None:
    await replaced(run, "postgres", how)
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
