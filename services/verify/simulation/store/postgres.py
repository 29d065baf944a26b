"""A real PostgreSQL beside the model, in step with it, to see whether they agree.

The model says who waits, what is lost and when a commit takes effect; the server does what it is
told at the same moments, and what the workers see is its answers. Each statement is answered by
both: what differs is noted, and so is what the tables differ in at the end. A lease is the model's
alone.
"""

import dataclasses
import importlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import psycopg

from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.plan import Kind
from services.verify.simulation.process import Process, current
from services.verify.simulation.store.connection import Connection
from services.verify.simulation.store.database import Database, Row, Transaction
from services.verify.simulation.store.replacements import replacements
from shared.store.positions import Superseded
from shared.store.writer import ensure_observation_partition

Function = Callable[..., Any]

NOT_IN_STEP: Final[frozenset[Kind]] = frozenset({"import", "records-lost", "topic-anew", "growth"})
"""Faults after which people write to the database: they have the model alone at hand."""

_IN_STEP: Final = (
    "shared.store.positions.advance_positions",
    "shared.store.positions.raise_positions",
    "shared.store.positions.read_positions",
    "shared.store.writer.update_pages",
    "shared.store.writer.insert_pages",
    "shared.store.page_classes.write_classes",
    "shared.store.writer.write_hosts",
    "shared.store.writer.update_hosts",
    "shared.store.writer.append_observations",
    "shared.store.erasing.erase_pages",
    "shared.store.erasing.erase_hosts",
    "shared.store.owners.require_ownership",
    "shared.store.owners.read_epochs",
    "shared.store.owners.note_announcing",
    "shared.store.learned_pages.read_pages",
    "shared.store.learned_pages.pages_of_host",
    "shared.store.splits.take_over",
    "shared.store.unanswered.write_unanswered",
    "shared.store.stream_topics.note_topics",
    "shared.store.stream_topics.read_topics",
)
"""Functions of a connection, which both run."""

_LOADING: Final = (
    "shared.store.snapshot.load_shard",
    "shared.store.snapshot.load_for_learning",
)

_CONNECTING: Final = (
    "shared.store.connection.connect",
    "shared.store.connection.connect_writer",
)

_LOOKING: Final = "shared.store.learned_pages.crawled_pages"
"""Comes in pieces."""

_RAISING: Final = "shared.store.owners.raise_epochs"

_TABLES: Final = (
    *("pages", "page_urls", "hosts", "observations", "stream_positions", "stream_topics"),
    *("shard_owners", "page_imports", "erased_pages", "erased_hosts", "page_classes"),
    *("shard_claims", "unanswered_pages"),
)

_SAID: Final = (Superseded, psycopg.IntegrityError)
"""What a statement says of the tables, and not of the way there."""

MOST_NOTED: Final = 20


class _Pair(Connection):
    """A connection to the model, and the one to the server that goes with it."""

    def __init__(self, database: Database, real: psycopg.Connection) -> None:
        super().__init__(database, autocommit=real.autocommit)
        self.real = real
        self.adapters: Any = real.adapters
        self._last: Transaction | None = None

    def close(self) -> None:
        """Disconnect, once what is under way has come through or is undone."""
        super().close()
        last = self._last
        if last is None or last.is_over:
            self.real.close()
        else:
            last.writes.append(self.real.close)
            last.undoing.append(self.real.close)

    def execute(self, statement: str) -> None:
        """A setting for the rest of the transaction, on both."""
        super().execute(statement)
        self.real.execute(statement.encode())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """As the model's; the server's ends when that does, in the same way."""
        with super().transaction():
            mine = self._last = self.mine
            if self.real.autocommit:
                self.real.execute("BEGIN")
            mine.writes.append(self.real.commit)
            mine.undoing.append(self._undo)
            yield

    def _undo(self) -> None:
        if not self.real.closed:
            self.real.rollback()


class Postgres:
    """The server's part in one simulation."""

    def __init__(self, database_url: str) -> None:
        """Begin with empty tables.

        Args:
            database_url: of a migrated database, which nobody else uses.
        """
        self.differences: list[str] = []
        """What model and server did not agree on."""
        self._url = database_url
        self._is_inside = False
        self._pairs: list[tuple[Process, _Pair]] = []
        with psycopg.connect(database_url) as connection:
            connection.execute(f"TRUNCATE {', '.join(_TABLES)}".encode())
            ensure_observation_partition(connection, BEGINNING)

    def replacements(self, database: Database) -> dict[str, Function]:
        """Module and function → what stands in its place."""
        database.forgot = self._forget
        found = replacements(database)
        originals = {
            name: _original(name)
            for name in (*_IN_STEP, *_LOADING, *_CONNECTING, _LOOKING, _RAISING)
        }
        found |= {name: self._in_step(name, originals[name], found[name]) for name in _IN_STEP}
        found |= {name: self._loading(originals[name], found[name]) for name in _LOADING}
        found[_LOOKING] = self._looking(originals[_LOOKING], found[_LOOKING])
        found |= {name: self._connecting(originals[name], database) for name in _CONNECTING}
        return found | {_RAISING: self._raising(originals[_RAISING], found[_RAISING])}

    def _note(self, text: str) -> None:
        if len(self.differences) < MOST_NOTED:
            self.differences.append(text[:500])

    def _forget(self, process: Process) -> None:
        """A process is gone, and with it its connections."""
        for owner, pair in self._pairs:
            if owner is process:
                pair.real.close()
        self._pairs = [(owner, pair) for owner, pair in self._pairs if owner is not process]

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """What a real function calls is real too."""
        self._is_inside = True
        try:
            yield
        finally:
            self._is_inside = False

    def _connecting(self, original: Function, database: Database) -> Function:
        def connect(_url: str, role: str, **options: Any) -> Any:
            if self._is_inside:
                return original(self._url, role, **options)
            database.check()
            with self._inside():
                pair = _Pair(database, original(self._url, role, **options))
            self._pairs.append((current(), pair))
            return pair

        return connect

    def _loading(self, original: Function, model: Function) -> Function:
        def load(_url: str, shard: int, *more: Any) -> Any:
            model(_url, shard)
            with self._inside():
                return original(self._url, shard, *more)

        return load

    def _looking(self, original: Function, model: Function) -> Function:
        def look(_url: str, shard: int, progress: Callable[[], None]) -> Iterator[Any]:
            list(model(_url, shard, progress))
            with self._inside():
                return iter(list(original(self._url, shard)))

        return look

    def _in_step(self, name: str, original: Function, model: Function) -> Function:
        def statement(connection: Any, *args: Any) -> Any:
            if self._is_inside or not isinstance(connection, _Pair):
                return original(connection, *args)
            try:
                expected = model(connection, *args)
            except _SAID as error:
                self._expect(name, error, lambda: original(connection.real, *args))
                raise
            try:
                with self._inside():
                    answer = original(connection.real, *args)
            except Exception as error:
                self._note(f"{name}: the server says {error!r}")
                raise
            if not same(expected, answer):
                self._note(f"{name}: {answer} of the server, {expected} of the model")
            return answer

        return statement

    def _expect(self, name: str, error: Exception, run: Callable[[], Any]) -> None:
        """The server must say the same; its transaction is undone then, as the model's."""
        try:
            with self._inside():
                run()
        except type(error):
            return
        self._note(f"{name}: {error!r} of the model, nothing of the server")

    def _raising(self, original: Function, model: Function) -> Function:
        """Epochs rise with the server's clock, so the model takes over the server's."""

        def raise_epochs(connection: Any, shards: Any, holder: str) -> Any:
            raised = model(connection, shards, holder)
            with self._inside():
                raised |= original(connection.real, shards, holder)
            return raised

        return raise_epochs

    # At the end.

    def compare(self, database: Database) -> None:
        """Note what the tables differ in."""
        for owner, _ in list(self._pairs):
            self._forget(owner)
        with psycopg.connect(self._url, row_factory=psycopg.rows.dict_row) as connection:
            tables: dict[str, tuple[dict[Any, Row], dict[Any, Row]]] = {
                "pages": (
                    _keyed(connection, "pages", "shard", "page_id"),
                    _flat(database.pages),
                ),
                "classes": (
                    _keyed(connection, "page_classes", "shard", "number"),
                    _flat(
                        {
                            shard: {number: {"name": name} for number, name in names.items()}
                            for shard, names in database.classes.items()
                        }
                    ),
                ),
                "unanswered": (
                    _keyed(connection, "unanswered_pages", "shard", "page_id"),
                    _flat(database.unanswered),
                ),
                "hosts": (
                    _keyed(connection, "hosts", "shard", "host_id"),
                    _flat(database.hosts),
                ),
                "positions": (
                    _keyed(connection, "stream_positions", "consumer", "topic", "partition"),
                    {key: {"next_offset": at} for key, at in database.positions.items()},
                ),
                "topics": (
                    _keyed(connection, "stream_topics", "topic"),
                    {(topic,): {"topic_id": name} for topic, name in database.topics.items()},
                ),
                "owners": (
                    _keyed(connection, "shard_owners", "shard"),
                    {
                        (shard,): {"epoch": row["epoch"], "holder": row["holder"]}
                        for shard, row in database.owners.items()
                    },
                ),
            }
            recorded = Counter(
                (row["shard"], row["page_id"], row["crawled_at"], row["changed"])
                for row in connection.execute(
                    "SELECT shard, page_id, crawled_at, changed FROM observations"
                )
            )
        for table, (real, model) in tables.items():
            for text in _differences(real, model):
                self._note(f"{table}: {text}")
        modelled = Counter(
            (s, page, at, changed) for s, page, at, _, _, changed in database.observations
        )
        if recorded != modelled:
            self._note(f"observations: {recorded - modelled} more, {modelled - recorded} less")


def same(one: Any, other: Any) -> bool:
    """Whether two answers, or columns of a row, say the same."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return bool(np.array_equal(one, other, equal_nan=one.dtype.kind == "f"))
    if dataclasses.is_dataclass(one) and type(one) is type(other):
        names = [field.name for field in dataclasses.fields(one)]
        return all(same(getattr(one, name), getattr(other, name)) for name in names)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def _original(name: str) -> Function:
    module, function = name.rsplit(".", 1)
    found: Function = getattr(importlib.import_module(module), function)
    return found


def _flat(table: Mapping[int, Mapping[int, Row]]) -> dict[Any, Row]:
    return {(shard, key): row for shard, rows in table.items() for key, row in rows.items()}


def _keyed(connection: Any, table: str, *key: str) -> dict[Any, Row]:
    rows = connection.execute(f"SELECT * FROM {table}".encode()).fetchall()
    return {tuple(row[name] for name in key): row for row in rows}


def _differences(real: Mapping[Any, Row], model: Mapping[Any, Row]) -> Iterator[str]:
    for key in sorted(real.keys() ^ model.keys()):
        yield f"{key} is in {'the server' if key in real else 'the model'} only"
    for key in sorted(real.keys() & model.keys()):
        for name, value in model[key].items():
            if name in real[key] and not same(_plain(value), _plain(real[key][name])):
                yield f"{key}: {name} is {real[key][name]} in the server, {value} in the model"


def _plain(value: Any) -> Any:
    """Values that stand for the same, as one."""
    if isinstance(value, memoryview):
        return bytes(value)
    is_nothing = value is None or value == b"" or (isinstance(value, float) and math.isnan(value))
    return None if is_nothing else value
