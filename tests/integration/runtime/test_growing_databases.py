"""Shards in two databases grow while workers run, and one of them goes away in the middle."""

import asyncio
import time

import psycopg
import pytest
from test_two_databases import (
    SHARDS,
    Fleet,
    crawls,
    dead_letters,
    go_on,
    servers,
    settings,
    until,
    workers,
)

from shared.contracts.codec import decode, encode
from shared.contracts.messages import Allotment, CrawlOutcome, CrawlRequest, Multipliers
from shared.contracts.topics import CRAWL_OUTCOMES, MULTIPLIERS
from shared.runtime import kafka
from shared.runtime.databases import databases_of
from shared.runtime.growing import add_partitions
from shared.store.layout import fetch_layout
from shared.store.splitting import finish, prepare, split_all

__all__ = ["servers", "settings"]

pytestmark = [pytest.mark.slow(60), pytest.mark.postgres]

GROWN = 2 * SHARDS
LONG_SECONDS = 300.0


class NotingFleet(Fleet):
    """Notes when it crawled each page last; of requests that it reads twice that is the later."""

    def __init__(self, settings):
        super().__init__(settings)
        self.crawled_at = {}

    async def _answer(self, record):
        request, now = decode(CrawlRequest, record.value), time.time()
        outcome = CrawlOutcome(request.url, now, result="unchanged", request_id=request.request_id)
        shard, host = record.partition, request.host.encode()
        await self.publisher.send(CRAWL_OUTCOMES, host, encode(outcome), partition=shard)
        self.answered[shard] += 1
        self.crawled_at[request.url] = now


def last_crawls(server):
    """URL → when it was crawled last, as far as that is applied."""
    with psycopg.connect(server.uri) as connection:
        query = "SELECT url, last_crawled_at FROM pages JOIN page_urls USING (shard, page_id)"
        return dict(connection.execute(query).fetchall())


class Command:
    """`freshet shards grow`; a server is stopped once one shard is split."""

    def __init__(self, settings, away):
        self._settings, self._databases, self._away = settings, databases_of(settings), away
        self.is_cut = False

    async def run(self):
        layout = await asyncio.to_thread(prepare, self._databases, GROWN)
        await add_partitions(self._settings, GROWN)
        await asyncio.to_thread(
            split_all, self._databases, layout, self._told, wait_seconds=LONG_SECONDS
        )
        await asyncio.to_thread(finish, self._databases, layout, self._told)

    def _told(self, done, _total, _what):
        if done == 1 and not self.is_cut:
            self._away.stop()
            self.is_cut = True


async def give_budget(fleet):
    now = time.time()
    shares = [Allotment(shard, 1 / GROWN) for shard in range(GROWN)]
    await fleet.publisher.send_global(MULTIPLIERS, Multipliers(2, now, now, 1e6, 40.0, 0.0, shares))


@pytest.mark.parametrize(
    "home_goes",
    [pytest.param(False, marks=pytest.mark.long), True],
    ids=["the other", "the home"],
)
async def test_shards_of_one_database_are_split_and_picked_while_another_is_away(
    settings, servers, tmp_path, monkeypatch, home_goes
):
    monkeypatch.setattr(kafka, "METADATA_SECONDS", 1)  # of the fleet
    home, other = servers
    away, there = (home, other) if home_goes else (other, home)
    # Shard 0 is the first that is split: at home, which goes away then, or stays.
    others = {2, 3} if home_goes else {0, 1}

    async with NotingFleet(settings) as fleet:
        await fleet.add_pages()
        await fleet.give_budget(40.0)
        with workers(settings, tmp_path) as processes:
            await asyncio.gather(*(process.ready() for process in processes))
            for server, shards in ((home, {0, 1}), (other, {2, 3})):
                await go_on(fleet, server, shards, *processes)

            command = Command(settings, away)
            growing = asyncio.ensure_future(command.run())
            await give_budget(fleet)
            await until(lambda: command.is_cut or growing.done(), *processes)
            await until(lambda: others <= fetch_layout(there.uri).split, *processes)
            assert not growing.done()
            grown = set(crawls(there))
            assert grown > others
            await go_on(fleet, there, grown, *processes)

            await asyncio.to_thread(away.start)
            async with asyncio.timeout(LONG_SECONDS):
                await growing
            for server in servers:
                assert not fetch_layout(server.uri).is_growing
                await go_on(fleet, server, set(crawls(server)), *processes)
            await fleet.stop()

            def all_applied():
                return (last_crawls(home) | last_crawls(other)) == fleet.crawled_at

            await until(all_applied, *processes)
    assert await dead_letters(settings) == []
