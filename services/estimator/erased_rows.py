"""Pages and hosts that a batch erases, as the database takes them."""

from collections.abc import Sequence

import numpy as np
import psycopg

from services.estimator.application import ShardEffects, by_host_id
from shared.rules.host_rules import HostRules
from shared.store import writer
from shared.store.columns import host_rules
from shared.store.erasing import ErasedRows, erase_hosts, erase_pages
from shared.store.page_status import NEVER


def erase(connection: psycopg.Connection, done: Sequence[ShardEffects]) -> None:
    """Erase what batches erase, after all else that they write."""
    if not done:
        return
    erase_pages(connection, ErasedRows.of([_pages(part) for part in done]))
    if not any(part.erased_hosts or part.erased_again.hosts for part in done):
        return
    erase_hosts(connection, ErasedRows.of([_hosts(part) for part in done]))
    for part in done:
        if any(host.is_kept for host in part.erased_hosts):
            writer.write_hosts(connection, _begun_anew(part))


def _pages(part: ShardEffects) -> ErasedRows:
    pages, again = part.shard.pages[part.erased], part.erased_again.pages
    return _rows(
        part, [*pages["page_id"].tolist(), *again], [*pages["updated_at"].tolist(), *again.values()]
    )


def _hosts(part: ShardEffects) -> ErasedRows:
    hosts, again = part.erased_hosts, part.erased_again.hosts
    ids = part.shard.hosts.records["host_id"][[host.row for host in hosts]].tolist()
    return _rows(part, [*ids, *again], [*(host.erased_at for host in hosts), *again.values()])


def _rows(part: ShardEffects, ids: Sequence[int], times: Sequence[float]) -> ErasedRows:
    return ErasedRows(
        np.full(len(ids), part.shard.number, np.int16),
        np.array(ids, np.int64),
        np.array(times, np.float64),
    )


def _begun_anew(part: ShardEffects) -> writer.HostLimits:
    """Hosts that are erased, and have newer pages or rules: nothing else is known of them."""
    hosts = part.shard.hosts
    is_ruled = {host.row: host.is_ruled for host in part.erased_hosts if host.is_kept}
    ordered = by_host_id(part.shard, np.array(list(is_ruled), np.int64)).tolist()
    rules, ruled_at = host_rules(len(ordered)), np.full(len(ordered), NEVER)
    for place, row in enumerate(ordered):
        if is_ruled[row]:
            ruled_at[place] = hosts.records["limit_updated_at"][row]
            HostRules.read(hosts.records[row]).said.write(rules[place])
    return writer.HostLimits(
        shards=np.full(len(ordered), part.shard.number, np.int16),
        host_ids=np.ascontiguousarray(hosts.records["host_id"][ordered]),
        hosts=[hosts.names[row] for row in ordered],
        rules=rules,
        limit_updated_at=ruled_at,
    )
