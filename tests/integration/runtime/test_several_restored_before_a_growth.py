"""Several databases, of which one or all go back to before a growth, by the page's commands."""

import asyncio
import re
import time

import pytest
from click.testing import CliRunner
from documented import blocks, follow, freshet
from test_backup_of_several import SESSION_SECONDS, SHARDS, Installation
from workers import PATIENCE_SECONDS, worker

from services.cli import applied
from services.cli.main import main
from shared.contracts.identity import identify
from shared.contracts.messages import PageUpdate
from shared.contracts.topics import PAGE_UPDATES
from shared.runtime.publisher import Publisher
from shared.store.layout import fetch_layout

GROWN = 2 * SHARDS
GONE = range(40, 50)
"""Pages that come after the dump, and go after the growth."""
DUMP, RESTORE_ALL, RESTORE_OTHER, GROW = range(4)
"""Blocks of commands."""


def of_page(number):
    return blocks("databases.md", "Backup")[number]


def growing():
    """The command of the page; partitions that are there already, nobody has to hear of."""
    [[_, *words]] = of_page(GROW)
    assert words.count("512") == 1
    return [*(word.replace("512", str(GROWN)) for word in words), "--yes", "--known-seconds", "0"]


async def remove(settings, numbers):
    publisher = Publisher(settings)
    await publisher.start()
    for number in numbers:
        url = f"https://host-{number % 16}.example/{number}"
        gone = PageUpdate("remove", url, updated_at=1.7e9 + 900)
        await publisher.send_for_host(PAGE_UPDATES, identify(url).host, gone)
    await publisher.flush()
    await publisher.stop()


async def until_all_is_applied(estimator):
    """As the page says to look."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    await estimator.ready()
    while True:
        _, metrics = await estimator.get("/metrics")
        lags = re.findall(rb"^freshet_consumer_lag_records\S* (\S+)$", metrics, re.MULTILINE)
        if lags and not any(map(float, lags)):
            return
        assert time.monotonic() < deadline, estimator.log
        await asyncio.sleep(0.2)


@pytest.mark.slow(30)
@pytest.mark.long
async def test_workers_read_on_and_then_what_went_back_grows_again(
    local_broker, postgres_server, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    ours = Installation(postgres_server, local_broker, monkeypatch)

    async def run(number):
        return await asyncio.to_thread(follow, of_page(number), postgres_server._binaries)

    def shards():
        return [fetch_layout(url).shards for url in ours.urls]

    await ours.begin()
    with worker("estimator", ours.settings, tmp_path) as estimator:
        await ours.publish(range(40), 1.7e9 + 1)
        await ours.until(lambda: ours.crawls() == 40, estimator)
        await run(DUMP)
        await ours.publish(range(20, 60), 1.7e9 + 500)
        await ours.until(lambda: ours.crawls() == 80, estimator)
        await asyncio.to_thread(freshet, *growing())
        await ours.publish(range(30, 40), 1.7e9 + 800)
        await remove(ours.settings, GONE)
        await ours.until(lambda: ours.crawls() == 90, estimator)
        await until_all_is_applied(estimator)
    wanted, home = await asyncio.to_thread(ours.pages), ours.urls[0]
    assert {page[1] for pages in wanted for page in pages} > set(range(SHARDS))

    for restore, went_back in ((RESTORE_OTHER, [GROWN, SHARDS]), (RESTORE_ALL, [SHARDS, SHARDS])):
        ours.at(home if restore == RESTORE_OTHER else ours.empty(), ours.empty())
        said = await run(restore)
        assert "everything can be read on" in said["positions list"]
        with monkeypatch.context() as impatient:
            impatient.setattr(applied, "APPLIED_SECONDS", 0.1)
            too_early = await asyncio.to_thread(CliRunner().invoke, main, growing())
        assert "start estimators first" in too_early.output
        assert shards() == went_back
        await asyncio.sleep(SESSION_SECONDS)  # the broker gives up the member that was stopped
        with worker("estimator", ours.settings, tmp_path) as estimator:
            await until_all_is_applied(estimator)
            assert shards() == went_back
            await asyncio.to_thread(freshet, *growing())
            assert shards() == [GROWN, GROWN]
            await ours.until(lambda: ours.pages() == wanted, estimator)
