"""Installations of estimators whose shards tests split, without a broker."""

import asyncio
from collections import defaultdict

import psycopg
from aiokafka import ConsumerRecord
from estimator_world import DAY, NOW, SHARDS, TOPICS, Broker

from services.estimator.handler import EstimatorHandler
from shared.contracts.codec import encode
from shared.contracts.identity import identify, shard_of
from shared.contracts.messages import HostLimit
from shared.runtime.clock import ManualClock
from shared.runtime.settings import Settings
from shared.store.connection import connect
from shared.store.growth import split_shard
from shared.store.layout import fetch_layout
from shared.store.moving import tidy
from shared.store.splits import ask, hold

GROWN = 3 * SHARDS


class Log(Broker):
    """Topics that estimators read, and pass records on in."""

    def __init__(self):
        super().__init__()
        self.announced = defaultdict(list)
        self.hosts = defaultdict(list)
        self.records = defaultdict(list)
        self.passed_on = 0

    def add(self, message, shards, elsewhere=0):
        topic = TOPICS[type(message)]
        host = message.host if isinstance(message, HostLimit) else identify(message.url).host
        partition = (shard_of(host, shards) + elsewhere) % shards
        self._append(topic, partition, host.encode(), encode(message), ())

    def _append(self, topic, partition, key, value, headers):
        part = self.records[topic, partition]
        part.append(
            ConsumerRecord(topic, partition, len(part), 0, 0, key, value, None, 0, 0, headers)
        )

    async def pass_on(self, misplaced):
        for one in misplaced:
            record = one.record
            self.passed_on += 1
            self._append(record.topic, one.shard, record.key, record.value, record.headers)


class Member:
    """An estimator, and where it reads on."""

    def __init__(self, handler, log, shards):
        self.handler, self._log, self._shards = handler, log, shards
        self._next = defaultdict(int)

    async def join(self):
        self._next.update(await self.handler.assigned(self._shards))

    async def read(self):
        """Handle all that there is now; whether there was anything."""
        batch = {}
        for (topic, shard), records in list(self._log.records.items()):
            new = records[self._next[topic, shard] :]
            if new and shard in self._shards:
                batch.setdefault(topic, {})[shard] = new
                self._next[topic, shard] = len(records)
        if batch:
            await self.handler.handle(batch)
        return bool(batch)


class Installation:
    def __init__(self, url):
        self.url = url
        self.settings = Settings(database_url=url, partitions=SHARDS)
        self.log = Log()
        self.members = []

    async def start(self, *shards):
        for part in shards:
            clock = ManualClock(NOW + 30 * DAY)
            handler = EstimatorHandler(self.settings, clock, self.log, asyncio.Event())
            await handler.open()
            member = Member(handler, self.log, set(part))
            await member.join()
            self.members.append(member)

    async def stop(self):
        for member in self.members:
            await member.handler.close()
        self.members = []

    async def settle(self):
        while any([await member.read() for member in self.members]):
            pass

    def split(self, parent):
        layout = fetch_layout(self.url)
        with connect(self.url, "grow", autocommit=True) as connection:
            assert ask(connection, parent, 60.0)
            assert hold(connection, parent)
            split_shard(connection, layout, parent, "grow")
            tidy(connection, layout, parent)

    def learned(self):
        """All that is known of pages and hosts, but for their shards."""
        with psycopg.connect(self.url) as connection:
            tables = {
                "pages": "to_jsonb(pages) - 'shard'",
                "page_urls": "to_jsonb(page_urls) - 'shard'",
                "hosts": "to_jsonb(hosts) - 'shard'",
                "observations": "to_jsonb(observations) - 'shard'",
            }
            return {
                table: sorted(
                    text
                    for (text,) in connection.execute(
                        f"SELECT ({columns})::text FROM {table}"
                    ).fetchall()
                )
                for table, columns in tables.items()
            }

    def shards_of_pages(self):
        with psycopg.connect(self.url) as connection:
            return connection.execute(
                "SELECT shard, url FROM pages JOIN page_urls USING (shard, page_id)"
            ).fetchall()
