"""What is learned of signal sources, over some hosts: for people."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import psycopg

from shared.contracts.identity import host_id_of
from shared.store.history import OWN_SOURCES
from shared.store.hosts import NO_SOURCES, unpack_hosts, unpack_sources
from shared.store.layout import read_layout
from shared.units import SECONDS_PER_DAY

_HOST: Final = "SELECT sources, learning FROM hosts WHERE shard = %s AND host_id = %s"
_PAGES: Final = """
SELECT coalesce(sum(estimate.unsignalled_change_rate), 0), coalesce(avg(page.first_seen_at), 0)
FROM pages AS page JOIN page_estimates AS estimate USING (shard, page_id)
WHERE page.shard = %s AND page.host_id = %s
"""


_SENDERS: Final = "SELECT host, sources, learning FROM hosts WHERE sources <> %s LIMIT %s"


class SourceRecord(NamedTuple):
    """A source, over the hosts that were asked about."""

    signals: float
    precision: float
    """The share of its signals that were followed by a change."""
    recall: float
    """The share of all changes that its signals announced."""


class Sender(NamedTuple):
    """Somebody who sends signals, over the hosts that were looked at."""

    hosts: int
    """That keep a record of it."""
    signals: float
    precision: float
    """The share of its signals that were followed by a change."""
    busiest: list[str]
    """The hosts of which it has sent the most signals, those first."""


class _Share(NamedTuple):
    signals: float
    true: float
    announced_a_day: float
    changes_a_day: float


def read_records(
    connection: psycopg.Connection, hosts: Sequence[str], now: float
) -> dict[str, SourceRecord]:
    """Source → its record. Those that share a slot with others at a host are left out there.

    Args:
        connection: to the database.
        hosts: whose pages the signals are about.
        now: Unix seconds.
    """
    shares: dict[str, list[_Share]] = {}
    layout = read_layout(connection)
    for host in hosts:
        for source, share in _of_host(connection, layout.shard_of(host), host, now).items():
            shares.setdefault(source, []).append(share)
    return {source: _together(some) for source, some in shares.items()}


def read_senders(connection: psycopg.Connection, most: int, each: int) -> dict[str, Sender]:
    """Source → what is learned of it, over so many hosts that ever had a signal.

    Those that share a slot with others at a host are left out there.

    Args:
        connection: to the database.
        most: hosts that are looked at.
        each: hosts of a source that are named.
    """
    found: dict[str, list[tuple[float, str, float]]] = {}
    for host, name, signals, true in _of_hosts(connection, most):
        found.setdefault(name, []).append((-signals, host, true))
    return {name: _sender(hosts, each) for name, hosts in found.items()}


def _sender(hosts: list[tuple[float, str, float]], each: int) -> Sender:
    signals = -sum(negated for negated, _, _ in hosts)
    true = sum(found for _, _, found in hosts)
    busiest = [host for _, host, _ in sorted(hosts)[:each]]
    return Sender(len(hosts), signals, true / max(signals, 1.0), busiest)


def _of_hosts(connection: psycopg.Connection, most: int) -> Iterator[tuple[str, str, float, float]]:
    """(Host, source, signals, true ones) of so many hosts that ever had a signal."""
    rows = connection.execute(_SENDERS, (NO_SOURCES, most)).fetchall()
    rows = [row for row in rows if row[2] is not None]
    learned = unpack_hosts(b"".join(bytes(packed) for _, _, packed in rows), len(rows))
    true = learned.signals * learned.precision
    for number, (host, stored, _) in enumerate(rows):
        for slot, name in enumerate(unpack_sources(stored)[:OWN_SOURCES]):
            yield host, name, float(learned.signals[number, slot]), float(true[number, slot])


def _of_host(
    connection: psycopg.Connection, shard: int, host: str, now: float
) -> dict[str, _Share]:
    row = connection.execute(_HOST, (shard, host_id_of(host))).fetchone()
    if row is None or row[1] is None:
        return {}
    names, learned = unpack_sources(row[0])[:OWN_SOURCES], unpack_hosts(row[1], 1)
    quiet, seen_at = connection.execute(_PAGES, (shard, host_id_of(host))).fetchone() or (0.0, now)
    days = max((now - seen_at) / SECONDS_PER_DAY, 1.0)
    true = (learned.signals * learned.precision)[0]
    changes = float(quiet) + float(true.sum()) / days
    return {
        name: _Share(
            float(learned.signals[0, slot]), float(true[slot]), float(true[slot]) / days, changes
        )
        for slot, name in enumerate(names)
    }


def _together(shares: Sequence[_Share]) -> SourceRecord:
    signals, true, announced, changes = map(sum, zip(*shares, strict=True))
    return SourceRecord(signals, true / max(signals, 1.0), announced / changes if changes else 0.0)
