"""The functions of `shared.store` that speak SQL, on the model: same names, arguments, errors."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import psycopg

from services.verify.simulation.blocking import blocking_here
from services.verify.simulation.store.columns import by_source_of, columns_of, rows_of
from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database, Row
from services.verify.simulation.store.erasing import erased_of
from services.verify.simulation.store.growth import BlockingConnection
from services.verify.simulation.store.imports import last_import
from services.verify.simulation.store.learned import learned_of
from services.verify.simulation.store.owners import OwnerStatements
from services.verify.simulation.store.unanswered import unanswered_of
from shared.contracts.layout import Layout
from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE, INITIAL_SHAPE
from shared.policy.estimation.quiet_pages import QuietPages
from shared.store.columns import (
    HOST_RULES,
    HostColumns,
    PageColumns,
    RemovedPages,
    host_rules,
)
from shared.store.connection import WORKING, Limits
from shared.store.history import WAITING, WAITING_OFFSET
from shared.store.host_factors import NONE, unpack_factors
from shared.store.hosts import INITIAL, PACKED_BYTES, unpack_hosts, unpack_sources
from shared.store.page_parts import PlacedUrls
from shared.store.page_status import REMOVED
from shared.store.positions import ESTIMATOR, Positions, Superseded
from shared.store.snapshot import LearningSnapshot, ShardSnapshot
from shared.store.writer import Column, HostEstimates, HostLimits, Observations, RefittedFactors


class Statements:
    """All of them, on one database."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._owners = OwnerStatements(database)

    # Connections.

    def connect(
        self,
        database_url: str,  # noqa: ARG002
        role: str,  # noqa: ARG002
        *,
        autocommit: bool = False,
        limits: Limits = WORKING,  # noqa: ARG002
    ) -> Connection:
        """As `shared.store.connection.connect` and `connect_writer`."""
        here = blocking_here()
        if here is not None:
            return BlockingConnection(self._database, here, autocommit=autocommit)
        return Connection(self._database, autocommit=autocommit)

    def read_layout(self, connection: Any) -> Layout:
        """As `shared.store.layout.read_layout`."""
        _ = connection
        self._database.check()
        return self._database.layout

    # Positions.

    def advance_positions(
        self,
        connection: Connection,
        consumer: str,
        before: Mapping[tuple[str, int], int],
        after: Mapping[tuple[str, int], int],
    ) -> None:
        """As `shared.store.positions.advance_positions`."""
        mine, table = connection.mine, self._database.positions
        keys = sorted(after)
        self._database.lock(mine, [("position", consumer, *key) for key in keys])
        moved = [key for key in keys if table.get((consumer, *key), 0) != before.get(key, 0)]
        if moved:
            raise Superseded(f"{len(moved)} of {len(keys)} partitions were moved on by another")
        new = {(consumer, *key): after[key] for key in keys}
        if consumer == ESTIMATOR:
            mine.moves |= {partition for _, partition in keys}
        mine.writes.append(lambda: table.update(new))

    def raise_positions(
        self, connection: Connection, consumer: str, after: Mapping[tuple[str, int], int]
    ) -> None:
        """As `shared.store.positions.raise_positions`."""
        mine, table = connection.mine, self._database.positions
        self._database.lock(mine, [("position", consumer, *key) for key in after])
        new = {(consumer, *key): offset for key, offset in after.items()}

        def write() -> None:
            for key, offset in new.items():
                table[key] = max(table.get(key, 0), offset)

        mine.writes.append(write)

    def read_positions(
        self,
        connection: Connection | None,
        consumer: str,
        partitions: Iterable[int],
    ) -> Positions:
        """As `shared.store.positions.read_positions`."""
        if connection is not None:
            connection.require()
        wanted = set(partitions)
        return {
            (topic, partition): offset
            for (whose, topic, partition), offset in self._database.positions.items()
            if whose == consumer and partition in wanted
        }

    # Pages and hosts.

    def update_pages(self, connection: Connection, values: dict[str, Column]) -> int:
        """As `shared.store.writer.update_pages`."""
        database, mine = self._database, connection.mine
        rows = [
            row
            for row in rows_of(values)
            if row["page_id"] in database.pages.get(row["shard"], {})
            or ("page", row["shard"], row["page_id"]) in mine.inserted
        ]
        database.lock(mine, [("page", row["shard"], row["page_id"]) for row in rows])

        def write() -> None:
            for row in rows:
                own = {k: v for k, v in row.items() if k not in ("host_id",)}
                database.pages[row["shard"]][row["page_id"]].update(own)

        mine.writes.append(write)
        return len(rows)

    def insert_pages(
        self, connection: Connection, values: dict[str, Column], urls: list[str]
    ) -> None:
        """As `shared.store.writer.insert_pages`."""
        database, mine = self._database, connection.mine
        rows = rows_of(values)
        keys = [("page", row["shard"], row["page_id"]) for row in rows]
        database.lock(mine, list(keys))
        if any(row["page_id"] in database.pages.get(row["shard"], {}) for row in rows):
            raise psycopg.errors.UniqueViolation("a page is there already")
        mine.inserted.update(keys)

        def write() -> None:
            for row, url in zip(rows, urls, strict=True):
                database.pages.setdefault(row["shard"], {})[row["page_id"]] = dict(row)
                database.urls[row["shard"], row["page_id"]] = url

        mine.writes.append(write)

    def write_classes(self, connection: Connection, shard: int, names: Mapping[int, str]) -> None:
        """As `shared.store.page_classes.write_classes`."""
        known, new = self._database.classes.setdefault(shard, {}), dict(names)
        connection.mine.writes.append(lambda: known.update(new))

    def write_hosts(self, connection: Connection, limits: HostLimits) -> None:
        """As `shared.store.writer.write_hosts`."""
        database, mine = self._database, connection.mine
        rows = rows_of(
            {
                "shard": limits.shards,
                "host_id": limits.host_ids,
                "host": limits.hosts,
                **{name: limits.rules[name] for name in HOST_RULES.names or ()},
                "limit_updated_at": limits.limit_updated_at,
            }
        )
        for row in rows:
            row["max_open_requests"] = row["max_open_requests"] or None
            row["named_group"] = row["named_group"].decode() or None
        keys = [("host", row["shard"], row["host_id"]) for row in rows]
        database.lock(mine, list(keys))
        mine.inserted.update(keys)

        def write() -> None:
            for row in rows:
                known = database.hosts.setdefault(row["shard"], {})
                known.setdefault(
                    row["host_id"],
                    {
                        "prior_shape": None,
                        "prior_rate": None,
                        "sources": "[]",
                        "learning": None,
                        "factors": NONE,
                        "quiet_found": 0.0,
                        "quiet_predicted": 0.0,
                        "quiet_belief": 1.0,
                    },
                ).update(row)

        mine.writes.append(write)

    def update_hosts(self, connection: Connection, estimates: HostEstimates) -> int:
        """As `shared.store.writer.update_hosts`."""
        database, mine = self._database, connection.mine
        rows = [
            row
            for row in rows_of(
                {
                    "shard": estimates.shards,
                    "host_id": estimates.host_ids,
                    "prior_shape": estimates.prior_shape,
                    "prior_rate": estimates.prior_rate,
                    "sources": estimates.sources,
                    "learning": estimates.learning,
                    "quiet_found": estimates.quiet.found,
                    "quiet_predicted": estimates.quiet.predicted,
                    "quiet_belief": estimates.quiet.belief,
                }
            )
            if row["host_id"] in database.hosts.get(row["shard"], {})
            or ("host", row["shard"], row["host_id"]) in mine.inserted
        ]
        database.lock(mine, [("host", row["shard"], row["host_id"]) for row in rows])

        def write() -> None:
            for row in rows:
                database.hosts[row["shard"]][row["host_id"]].update(row)

        mine.writes.append(write)
        return len(rows)

    def update_factors(self, connection: Connection, refitted: RefittedFactors) -> None:
        """As `shared.store.writer.update_factors`."""
        hosts, mine = self._database.hosts, connection.mine
        keys = list(zip(refitted.shards.tolist(), refitted.host_ids.tolist(), strict=True))
        self._database.lock(mine, [("host", *key) for key in keys])

        def write() -> None:
            for (shard, host_id), packed in zip(keys, refitted.packed, strict=True):
                hosts[shard][host_id]["factors"] = packed

        mine.writes.append(write)

    def append_observations(
        self,
        connection: Connection,
        found: Observations,
        recorded_at: float,  # noqa: ARG002
    ) -> None:
        """As `shared.store.writer.append_observations`."""
        rows = list(
            zip(
                found.shards.tolist(),
                found.page_ids.tolist(),
                found.crawled_at.tolist(),
                found.interval_days.tolist(),
                found.signals.tolist(),
                found.changed.tolist(),
                strict=True,
            )
        )
        connection.mine.records |= {shard for shard, *_ in rows}
        connection.mine.writes.append(lambda: self._database.observations.extend(rows))

    # Snapshots.

    def load_shard(
        self, database_url: str, shard: int, progress: Callable[[], None] = lambda: None
    ) -> ShardSnapshot:
        """As `shared.store.snapshot.load_shard`."""
        _ = database_url
        self._database.check()
        progress()
        stored = self._pages_of(shard)
        rows = [row for row in stored if row["status"] != REMOVED]
        removed = columns_of(RemovedPages, [row for row in stored if row["status"] == REMOVED])
        erased = erased_of(self._database, shard)
        width = WAITING_OFFSET + WAITING.itemsize
        waiting = np.frombuffer(
            b"".join(row["history"][WAITING_OFFSET:width] for row in rows), WAITING
        )
        return ShardSnapshot(
            shard,
            columns_of(PageColumns, rows),
            waiting["pending"],
            waiting["multiplier"],
            self._urls_of(shard, rows),
            self._hosts_of(shard),
            self.read_positions(None, ESTIMATOR, [shard]),
            waiting["last_source"].astype(np.int8),
            by_source_of(rows),
            self._database.layout,
            self._owners.epoch_of(shard),
            last_import(self._database, shard),
            removed,
            erased.pages,
            erased.hosts,
            dict(self._database.classes.get(shard, {})),
            unanswered_of(self._database, shard),
        )

    def load_for_learning(
        self,
        database_url: str,
        shard: int,
        most_pages: float = math.inf,
        among: Collection[int] = (),
    ) -> LearningSnapshot:
        """As `shared.store.snapshot.load_for_learning`."""
        _ = database_url
        self._database.check()
        stored = self._pages_of(shard)
        together = sum(len(self._database.pages.get(n, {})) for n in {shard, *among})
        is_whole = together <= most_pages
        pages = learned_of(self._database, shard, stored if is_whole else [])
        return LearningSnapshot(
            *pages.parts,
            shard,
            is_whole,
            sum(row["history"][1] for row in stored),
            self._hosts_of(shard),
            self.read_positions(None, ESTIMATOR, [shard]),
            self._owners.announcing_of(shard),
            erased_of(self._database, shard),
            self._database.layout,
            dict(self._database.classes.get(shard, {})),
        )

    def _urls_of(self, shard: int, rows: Sequence[Row]) -> PlacedUrls:
        return PlacedUrls.of([self._database.urls[shard, row["page_id"]].encode() for row in rows])

    def _pages_of(self, shard: int) -> list[Row]:
        pages = self._database.pages.get(shard, {})
        return [pages[page_id] for page_id in sorted(pages)]

    def _hosts_of(self, shard: int) -> HostColumns:
        known = self._database.hosts.get(shard, {})
        rows = [known[host_id] for host_id in sorted(known)]

        def column(name: str, otherwise: float = 0.0) -> Any:
            return np.array(
                [otherwise if row[name] is None else row[name] for row in rows], np.float64
            )

        rules, nothing = host_rules(len(rows)), host_rules(1)[0]
        for name in HOST_RULES.names or ():
            rules[name] = [nothing[name] if row[name] is None else row[name] for row in rows]
        learning = b"".join(row["learning"] or INITIAL for row in rows)
        return HostColumns(
            np.array([row["host_id"] for row in rows], np.int64),
            [row["host"] for row in rows],
            rules,
            column("limit_updated_at"),
            column("prior_shape", INITIAL_SHAPE),
            column("prior_rate", INITIAL_SHAPE / INITIAL_CHANGE_RATE),
            [unpack_sources(row["sources"]) for row in rows],
            unpack_hosts(learning, len(learning) // PACKED_BYTES),
            [unpack_factors(row["factors"]) for row in rows],
            QuietPages(column("quiet_found"), column("quiet_predicted"), column("quiet_belief")),
        )
