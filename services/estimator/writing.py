"""What a batch writes: the rows of its effects, in the order of the tables' keys."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Final

import numpy as np
import psycopg
from numpy.typing import NDArray

from services.estimator.application import ShardEffects
from services.estimator.erased_rows import erase
from services.estimator.hosts import quiet_of
from services.estimator.shard import PAGE
from shared.store import writer
from shared.store.binary import joined_blobs
from shared.store.history import pack
from shared.store.host_factors import pack_factors
from shared.store.hosts import HostLearning, pack_hosts, pack_sources
from shared.store.page_classes import write_classes
from shared.store.positions import Superseded
from shared.store.source_times import pack_source_times

_STORED: Final = (
    "page_id",
    "importance",
    "max_age_days",
    "unsignalled_change_rate",
    "signal_evidence",
    "signal_rate",
    "first_seen_at",
    "last_crawled_at",
    "last_attempt_at",
    "last_changed_at",
    "last_signal_at",
    "updated_at",
    "urgent_at",
    "digest",
    "signal_count",
    "signals",
    "crawls",
    "changes",
    "failures",
    "misses",
    "status",
    "page_class",
)


def append_observations(
    connection: psycopg.Connection, done: Sequence[ShardEffects], recorded_at: float
) -> writer.Observations | None:
    """Append what crawls found; None: nothing."""
    if not any(part.observations.page_ids.size for part in done):
        return None
    joined = writer.Observations(
        *(
            np.concatenate([getattr(part.observations, field.name) for part in done])
            for field in fields(writer.Observations)
        )
    )
    writer.append_observations(connection, joined, recorded_at)
    return joined


def write_rows(connection: psycopg.Connection, done: Sequence[ShardEffects]) -> None:
    """Write all else: hosts, classes, pages, and what is erased.

    Raises:
        Superseded: rows of this process are not there any more.
    """
    if any(part.hosts for part in done):
        writer.write_hosts(connection, _hosts(done))
    for part in done:
        if classes := part.shard.classes.take_new():
            write_classes(connection, part.shard.number, classes)
    if any(part.added.size for part in done):
        urls = [url for part in done for url in part.added_urls]
        writer.insert_pages(connection, _pages([(p, p.added) for p in done]), urls)
    counted = sum(part.counted_hosts.size for part in done)
    if counted and writer.update_hosts(connection, _estimates(done)) != counted:
        raise Superseded("hosts of this process are no longer in the store")
    if any(part.factored.size for part in done):
        writer.update_factors(connection, _factors(done))
    touched = sum(part.touched.size for part in done)
    if touched:
        written = writer.update_pages(connection, _pages([(p, p.touched) for p in done]))
        if written != touched:
            raise Superseded(f"{touched - written} of {touched} pages are no longer in the store")
    erase(connection, [part for part in done if part.erases])


def _pages(
    chosen: Iterable[tuple[ShardEffects, NDArray[np.int64]]],
) -> dict[str, writer.Column]:
    """The columns of some rows of each shard."""
    parts = [(part.shard, rows) for part, rows in chosen if rows.size]
    # Joining them costs more than the reading, for the sake of types that might differ.
    records = np.empty(sum(rows.size for _, rows in parts), PAGE)
    begin = 0
    for shard, rows in parts:
        np.take(shard.pages, rows, out=records[begin : begin + rows.size])
        begin += rows.size
    columns: dict[str, writer.Column] = {name: records[name] for name in _STORED}
    columns["shard"] = np.concatenate(
        [np.full(rows.size, shard.number, np.int16) for shard, rows in parts]
    )
    columns["host_id"] = np.concatenate(
        [shard.hosts.records["host_id"][shard.pages["host"][rows]] for shard, rows in parts]
    )
    columns["history"] = joined_blobs([pack(shard.rings, rows) for shard, rows in parts])
    columns["signal_times"] = joined_blobs(
        [
            pack_source_times(shard.by_source.ages, shard.pages["several"][rows])
            for shard, rows in parts
        ]
    )
    return columns


def _hosts(done: Sequence[ShardEffects]) -> writer.HostLimits:
    parts = [part for part in done if part.hosts]
    records = np.concatenate([part.shard.hosts.records[part.hosts] for part in parts])
    return writer.HostLimits(
        shards=np.concatenate(
            [np.full(len(part.hosts), part.shard.number, np.int16) for part in parts]
        ),
        host_ids=np.ascontiguousarray(records["host_id"]),
        hosts=[part.shard.hosts.names[row] for part in parts for row in part.hosts],
        rules=records,
        limit_updated_at=np.ascontiguousarray(records["limit_updated_at"]),
    )


def _estimates(done: Sequence[ShardEffects]) -> writer.HostEstimates:
    parts = [(part.shard, part.counted_hosts) for part in done if part.counted_hosts.size]
    records = np.concatenate([shard.hosts.records[rows] for shard, rows in parts])
    taken = [shard.hosts.learning.take(rows) for shard, rows in parts]
    learning = HostLearning(*map(np.concatenate, zip(*taken, strict=True)))
    return writer.HostEstimates(
        shards=np.concatenate(
            [np.full(rows.size, shard.number, np.int16) for shard, rows in parts]
        ),
        host_ids=records["host_id"],
        prior_shape=records["prior_shape"],
        prior_rate=records["prior_rate"],
        prior_precision=-np.expm1(-learning.evidence),
        sources=[
            _packed_sources(tuple(shard.hosts.sources[row]))
            for shard, rows in parts
            for row in rows.tolist()
        ],
        learning=pack_hosts(learning),
        quiet=quiet_of(records),
    )


def _factors(done: Sequence[ShardEffects]) -> writer.RefittedFactors:
    parts = [(part.shard, part.factored) for part in done if part.factored.size]
    return writer.RefittedFactors(
        np.concatenate([np.full(rows.size, shard.number, np.int16) for shard, rows in parts]),
        np.concatenate([shard.hosts.records["host_id"][rows] for shard, rows in parts]),
        [pack_factors(shard.hosts.factors[row]) for shard, rows in parts for row in rows.tolist()],
    )


@lru_cache(maxsize=1 << 16)
def _packed_sources(names: tuple[str, ...]) -> str:
    """Few hosts have sources that no other has, and every batch writes hundreds of hosts."""
    return pack_sources(names)
