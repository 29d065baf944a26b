"""Which records the estimator made durable together: noted by the database itself.

Triggers write down, within the estimator's own transactions, every move of its positions, every
refit of host priors, and every new owner of a shard. So the notes are exactly those of the
transactions that came through, however often a batch was begun; and with them the same events can
be applied once more without any fault.
"""

from collections import defaultdict
from dataclasses import dataclass
from typing import Final

import psycopg
from psycopg import sql

from shared.policy.estimation.first_guesses import INITIAL_CHANGE_RATE, INITIAL_SHAPE
from shared.store.history import SOURCES
from shared.store.hosts import INITIAL

_PRECISION_BYTES: Final = 8 * SOURCES
"""The prior precisions stand first in a packed host."""

_STATEMENTS: Final = (
    "CREATE SCHEMA verify",
    """CREATE TABLE verify.moves (
        id bigserial PRIMARY KEY, transaction int8 NOT NULL, at float8 NOT NULL,
        topic text NOT NULL, partition int4 NOT NULL, before int8 NOT NULL, after int8 NOT NULL)""",
    """CREATE TABLE verify.refits (
        transaction int8 NOT NULL, shard int2 NOT NULL, PRIMARY KEY (transaction, shard))""",
    """CREATE TABLE verify.owners (shard int2 NOT NULL, epoch int8 NOT NULL)""",
    """CREATE TABLE verify.splits (
        id bigserial PRIMARY KEY, parent int2 NOT NULL, last_move int8 NOT NULL)""",
    """CREATE FUNCTION verify.note_split() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO verify.splits (parent, last_move)
            SELECT NEW.parent, coalesce(max(id), 0) FROM verify.moves;
        RETURN NULL; END $$""",
    """CREATE TRIGGER note_split AFTER UPDATE OF split_at ON shard_splits FOR EACH ROW
        WHEN (NEW.split_at IS NOT NULL) EXECUTE FUNCTION verify.note_split()""",
    """CREATE FUNCTION verify.note_move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO verify.moves (transaction, at, topic, partition, before, after) VALUES
            (pg_current_xact_id()::text::int8, extract(epoch FROM clock_timestamp()),
             NEW.topic, NEW.partition, OLD.next_offset, NEW.next_offset);
        RETURN NULL; END $$""",
    """CREATE FUNCTION verify.note_refit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO verify.refits
            SELECT pg_current_xact_id()::text::int8, shard FROM shard_owners
            WHERE pg_current_xact_id()::xid IN (xmin, xmax)
            ON CONFLICT DO NOTHING;
        RETURN NULL; END $$""",
    """CREATE FUNCTION verify.note_owner() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO verify.owners VALUES (NEW.shard, NEW.epoch);
        RETURN NULL; END $$""",
    """CREATE TRIGGER note_owner AFTER INSERT OR UPDATE OF epoch ON shard_owners FOR EACH ROW
        EXECUTE FUNCTION verify.note_owner()""",
    """CREATE TRIGGER note_move AFTER UPDATE ON stream_positions FOR EACH ROW
        WHEN (NEW.consumer = 'estimator') EXECUTE FUNCTION verify.note_move()""",
)

_NOTE_REFIT: Final = """
CREATE TRIGGER note_refit AFTER UPDATE ON hosts FOR EACH ROW WHEN (
    coalesce(OLD.prior_shape, {shape}) IS DISTINCT FROM coalesce(NEW.prior_shape, {shape})
    OR coalesce(OLD.prior_rate, {rate}) IS DISTINCT FROM coalesce(NEW.prior_rate, {rate})
    OR substring(coalesce(OLD.learning, {learning}) FROM 1 FOR {length})
        IS DISTINCT FROM substring(coalesce(NEW.learning, {learning}) FROM 1 FOR {length})
    OR OLD.factors IS DISTINCT FROM NEW.factors
    OR OLD.quiet_belief IS DISTINCT FROM NEW.quiet_belief
) EXECUTE FUNCTION verify.note_refit()"""
"""Shards that were refitted together are those whose owner's rows the transaction has locked."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition of a topic was applied from an offset up to, and without, another."""

    topic: str
    partition: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """What became durable at once."""

    at: float
    """Unix seconds."""
    moves: list[Move]
    refitted: frozenset[int]
    """Shards of whose hosts the priors were refitted together after the records: all that their
    owner had. Empty: none were."""
    split: tuple[int, ...] = ()
    """Shards that were split since the transaction before, in order."""


def install(database_url: str) -> None:
    """Begin to take notes, before the first estimator starts."""
    with psycopg.connect(database_url, autocommit=True) as connection:
        for statement in _STATEMENTS:
            connection.execute(statement)
        connection.execute(
            sql.SQL(_NOTE_REFIT).format(
                shape=sql.Literal(INITIAL_SHAPE),
                rate=sql.Literal(INITIAL_SHAPE / INITIAL_CHANGE_RATE),
                learning=sql.Literal(INITIAL),
                length=sql.Literal(_PRECISION_BYTES),
            )
        )


def read(database_url: str) -> list[Transaction]:
    """The notes, in the order in which the transactions were made."""
    with psycopg.connect(database_url) as connection:
        rows = connection.execute(
            "SELECT id, transaction, at, topic, partition, before, after FROM verify.moves "
            "ORDER BY id"
        ).fetchall()
        refits: dict[int, set[int]] = defaultdict(set)
        for number, shard in connection.execute("SELECT transaction, shard FROM verify.refits"):
            refits[number].add(shard)
        splits = list(connection.execute("SELECT last_move, parent FROM verify.splits ORDER BY id"))
    found: dict[int, Transaction] = {}
    last = 0
    for move_id, number, at, *move in rows:
        known = found.get(number)
        if known is None:
            split = tuple(parent for after, parent in splits if last <= after < move_id)
            refitted = frozenset(refits.get(number, ()))
            known = found[number] = Transaction(at, [], refitted, split)
        last = move_id
        known.moves.append(Move(*move))
    return list(found.values())


def read_owners(database_url: str) -> dict[int, list[int]]:
    """Shard → the epochs of its owners, rising."""
    found: dict[int, list[int]] = {}
    with psycopg.connect(database_url) as connection:
        for shard, epoch in connection.execute("SELECT shard, epoch FROM verify.owners"):
            found.setdefault(shard, []).append(epoch)
    return {shard: sorted(epochs) for shard, epochs in found.items()}
