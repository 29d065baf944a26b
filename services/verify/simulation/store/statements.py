"""The functions of `shared.store` that speak SQL, on the model: same names, arguments, errors."""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import psycopg

from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database, Row
from services.verify.simulation.store.lease import LeaseStatements
from services.verify.simulation.store.owners import OwnerStatements
from shared.policy.estimation.host_priors import INITIAL_CHANGE_RATE, INITIAL_SHAPE
from shared.store.binary import Blobs
from shared.store.columns import HostColumns, LearningColumns, PageColumns, SignalsBySource
from shared.store.history import WAITING, WAITING_OFFSET, unpack
from shared.store.hosts import INITIAL, PACKED_BYTES, unpack_hosts, unpack_sources
from shared.store.models import REMOVED
from shared.store.positions import ESTIMATOR, Positions, Superseded
from shared.store.snapshot import LearningSnapshot, ShardSnapshot
from shared.store.source_times import unpack_source_times
from shared.store.writer import Column, HostEstimates, HostLimits, Observations

_TYPES: Final[dict[str, type[np.generic]]] = {
    "page_id": np.int64,
    "host_id": np.int64,
    "digest": np.int64,
    "signal_count": np.int64,
    "signals": np.int32,
    "crawls": np.int32,
    "changes": np.int32,
    "failures": np.int32,
    "status": np.int16,
}
"""Of columns that are no floats."""


def _rows(values: Mapping[str, Column]) -> list[Row]:
    """Columns as rows."""
    lists: list[list[Any]] = []
    for column in values.values():
        if isinstance(column, Blobs):
            data, ends = column.arena.tobytes(), column.offsets.tolist()
            lists.append([data[a:b] for a, b in itertools.pairwise(ends)])
        elif isinstance(column, list):
            lists.append(column)
        else:
            lists.append(column.tolist())
    names = tuple(values)
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]


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
        autocommit: bool = False,  # noqa: ARG002
    ) -> Connection:
        """As `shared.store.connection.connect` and `connect_writer`."""
        return Connection(self._database)

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
        connection: Connection | None,  # noqa: ARG002
        consumer: str,
        partitions: Iterable[int],
    ) -> Positions:
        """As `shared.store.positions.read_positions`."""
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
            for row in _rows(values)
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
        rows = _rows(values)
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

    def write_hosts(self, connection: Connection, limits: HostLimits) -> None:
        """As `shared.store.writer.write_hosts`."""
        database, mine = self._database, connection.mine
        rows = _rows(
            {
                "shard": limits.shards,
                "host_id": limits.host_ids,
                "host": limits.hosts,
                "max_crawls_per_second": limits.max_crawls_per_second,
                "blocked_until": limits.blocked_until,
                "limit_updated_at": limits.limit_updated_at,
            }
        )
        keys = [("host", row["shard"], row["host_id"]) for row in rows]
        database.lock(mine, list(keys))
        mine.inserted.update(keys)

        def write() -> None:
            for row in rows:
                known = database.hosts.setdefault(row["shard"], {})
                known.setdefault(
                    row["host_id"],
                    {"prior_shape": None, "prior_rate": None, "sources": "[]", "learning": None},
                ).update(row)

        mine.writes.append(write)

    def update_hosts(self, connection: Connection, estimates: HostEstimates) -> int:
        """As `shared.store.writer.update_hosts`."""
        database, mine = self._database, connection.mine
        rows = [
            row
            for row in _rows(
                {
                    "shard": estimates.shards,
                    "host_id": estimates.host_ids,
                    "prior_shape": estimates.prior_shape,
                    "prior_rate": estimates.prior_rate,
                    "sources": estimates.sources,
                    "learning": estimates.learning,
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
        connection.mine.writes.append(lambda: self._database.observations.extend(rows))

    # Snapshots.

    def load_shard(
        self, database_url: str, shard: int, progress: Callable[[], None] = lambda: None
    ) -> ShardSnapshot:
        """As `shared.store.snapshot.load_shard`."""
        _ = database_url
        self._database.check()
        progress()
        rows = [row for row in self._pages_of(shard) if row["status"] != REMOVED]
        width = WAITING_OFFSET + WAITING.itemsize
        waiting = np.frombuffer(
            b"".join(row["history"][WAITING_OFFSET:width] for row in rows), WAITING
        )
        urls = [self._database.urls[shard, row["page_id"]].encode() for row in rows]
        ends = np.cumsum([0, *map(len, urls)], dtype=np.int64)
        return ShardSnapshot(
            shard,
            _columns(PageColumns, rows),
            waiting["pending"],
            waiting["multiplier"],
            Blobs(np.frombuffer(b"".join(urls), np.uint8), ends),
            self._hosts_of(shard),
            self.read_positions(None, ESTIMATOR, [shard]),
            waiting["last_source"].astype(np.int8),
            _by_source(rows),
            self._owners.epoch_of(shard),
        )

    def load_for_learning(self, database_url: str, shard: int) -> LearningSnapshot:
        """As `shared.store.snapshot.load_for_learning`."""
        _ = database_url
        self._database.check()
        rows = self._pages_of(shard)
        histories = [row["history"] for row in rows]
        ends = np.cumsum([0, *map(len, histories)], dtype=np.int64)
        return LearningSnapshot(
            shard,
            _columns(PageColumns, rows),
            _columns(LearningColumns, rows),
            unpack(Blobs(np.frombuffer(b"".join(histories), np.uint8), ends)),
            self._hosts_of(shard),
            self.read_positions(None, ESTIMATOR, [shard]),
            _by_source(rows),
            self._owners.announcing_of(shard),
        )

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

        learning = b"".join(row["learning"] or INITIAL for row in rows)
        return HostColumns(
            np.array([row["host_id"] for row in rows], np.int64),
            [row["host"] for row in rows],
            column("max_crawls_per_second"),
            column("blocked_until"),
            column("limit_updated_at"),
            column("prior_shape", INITIAL_SHAPE),
            column("prior_rate", INITIAL_SHAPE / INITIAL_CHANGE_RATE),
            [unpack_sources(row["sources"]) for row in rows],
            unpack_hosts(learning, len(learning) // PACKED_BYTES),
        )


def _columns(kind: Any, rows: Sequence[Row]) -> Any:
    names = [name if name != "page_ids" else "page_id" for name in kind.__dataclass_fields__]
    names = [name if name != "host_ids" else "host_id" for name in names]
    return kind(
        *(np.array([row[name] for row in rows], _TYPES.get(name, np.float64)) for name in names)
    )


def _by_source(rows: Sequence[Row]) -> SignalsBySource:
    several = [place for place, row in enumerate(rows) if row["signal_times"]]
    packed = b"".join(rows[place]["signal_times"] for place in several)
    return SignalsBySource(np.array(several, np.int64), unpack_source_times(packed))


def nothing(*_: Any, **__: Any) -> int:
    """In the place of what a simulation needs not."""
    return 0


def no_imports(connection: Connection, *_: Any) -> list[Any]:
    """In the place of `shared.store.imports_log.read_imports`: nobody imports anything."""
    connection.database.check()
    return []


def replacements(database: Database) -> dict[str, Callable[..., Any]]:
    """Module and function → what stands in its place."""
    statements, lease = Statements(database), LeaseStatements(database)
    owners = OwnerStatements(database)
    found: dict[str, Callable[..., Any]] = {
        "shared.store.connection.connect": statements.connect,
        "shared.store.connection.connect_writer": statements.connect,
        "shared.store.imports_log.read_imports": no_imports,
        "shared.store.deployment.check_deployment": nothing,
        "shared.store.imports.share_writer_lock": nothing,
        "shared.store.retention.drop_old_observations": nothing,
        "shared.store.multipliers.append_multipliers": nothing,
        "shared.store.multipliers.prune_multipliers": nothing,
        "shared.store.writer.ensure_observation_partition": nothing,
    }
    groups: Iterable[tuple[str, object, str]] = (
        ("shared.store.positions", statements, "advance_positions raise_positions read_positions"),
        (
            "shared.store.writer",
            statements,
            "update_pages insert_pages write_hosts update_hosts append_observations",
        ),
        ("shared.store.snapshot", statements, "load_shard load_for_learning"),
        (
            "shared.store.owners",
            owners,
            "raise_epochs require_ownership read_epochs note_announcing",
        ),
        ("shared.store.stream_topics", owners, "note_topics read_topics"),
        (
            "shared.store.lease",
            lease,
            "connect_lease read_lease take_lease renew_lease release_lease",
        ),
    )
    for module, owner, names in groups:
        found |= {f"{module}.{name}": getattr(owner, name) for name in names.split()}
    return found
