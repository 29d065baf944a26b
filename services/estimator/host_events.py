"""What limits and the outcomes of crawls say of hosts: their rules, their groups, their health."""

from collections.abc import Sequence

import numpy as np
from aiokafka import ConsumerRecord
from numpy.typing import NDArray

from services.estimator.decoding import Events, Reader
from services.estimator.shard import Shard
from shared.contracts.codec import decode
from shared.contracts.identity import PageIdentity, identify
from shared.contracts.messages import CrawlOutcome, HostLimit
from shared.rules.host_groups import goes_over
from shared.rules.host_rules import HostRules, are_late
from shared.rules.page_events import SIGNAL
from shared.store.page_status import NEVER, REMOVED


def apply_limits(shard: Shard, reader: Reader, records: Sequence[ConsumerRecord]) -> set[int]:
    """Take what operators say of hosts: rows of those of which something is said."""
    rows = set()
    for time, limit in reader.limits(records):
        is_late = shard.removals.of_host(limit.host) >= time
        if is_late or (limit == HostLimit(limit.host) and shard.hosts.row(limit.host) is None):
            continue  # the host is erased, or nobody says anything about it
        row = shard.hosts.row_or_new(limit.host)
        host = shard.hosts.records[row]
        rules = HostRules.read(host)
        rules.take(limit)
        rules.write(host)
        host["limit_updated_at"] = time
        rows.add(row)
    return rows


def hosts_of_outcomes(shard: Shard, rows: NDArray[np.int64], events: Events) -> NDArray[np.int64]:
    """Rows of the hosts of outcomes, whether their pages are known or not; −1 of those that nobody
    knows, and of signals."""
    is_outcome = events.kinds != SIGNAL
    hosts = np.full(rows.size, -1, np.int64)
    known = np.flatnonzero(is_outcome & (rows >= 0))
    hosts[known] = shard.pages["host"][rows[known]]
    for event in np.flatnonzero(is_outcome & (rows < 0)).tolist():
        hosts[event] = _host_of(shard, events, event)
    return hosts


def note_groups(shard: Shard, hosts: NDArray[np.int64], events: Events) -> set[int]:
    """What outcomes say of the groups of their hosts: rows of those that are of others now."""
    naming = np.flatnonzero((hosts >= 0) & (events.groups != b""))
    if not naming.size:
        return set()
    records = shard.hosts.records
    is_other = records["named_group"][hosts[naming]] != events.groups[naming]
    others = np.unique(hosts[naming[is_other]])
    changed = set()
    # All of what is said of these, in order: a host may go there and back in one batch.
    for event in naming[np.isin(hosts[naming], others)].tolist() if others.size else ():
        record, time = records[hosts[event]], float(events.times[event])
        is_new = record["named_group"] != events.groups[event]
        if is_new and goes_over(float(record["named_since"]), time):
            record["named_group"], record["named_since"] = events.groups[event], time
            changed.add(int(hosts[event]))
    return changed


def which_are_late(shard: Shard, rows: NDArray[np.int64], events: Events) -> NDArray[np.bool_]:
    """Which outcomes were of crawls before others of the same pages; to be called before they are
    applied. Nothing is known any more of a page that is removed."""
    if not (events.reached < 0).any():
        return np.zeros(rows.size, np.bool_)
    here = (rows >= 0) & (events.kinds != SIGNAL)
    here[here] = shard.pages["status"][rows[here]] != REMOVED
    known = np.full(rows.size, NEVER)
    known[here] = shard.pages["last_attempt_at"][rows[here]]
    return are_late(np.where(here, rows, -1), events.times, known)


def note_hosts(
    shard: Shard, hosts: NDArray[np.int64], events: Events, late: NDArray[np.bool_]
) -> set[int]:
    """What outcomes say of the health of their hosts, which are given by rows: rows of those whose
    rules are others now."""
    is_known = hosts >= 0
    if not is_known.any():
        return set()
    # A failure of before says nothing of a page that was crawled since, nor of its host.
    reached = np.where((events.reached < 0) & late, 0, events.reached)
    failed = hosts[is_known & (reached < 0)]
    failing = shard.hosts.records["failures"][hosts] > 0
    if failed.size:
        failing |= np.isin(hosts, failed)
    telling = is_known & ((events.busy_until > NEVER) | failing)
    changed = set()
    for event in np.flatnonzero(telling).tolist():
        row = int(hosts[event])
        record = shard.hosts.records[row]
        rules = HostRules.read(record)
        asked = events.busy_until[event] > NEVER and rules.ask(float(events.busy_until[event]))
        noted = rules.note(int(reached[event]), float(events.times[event]))
        if asked or noted:
            rules.write(record)
            changed.add(row)
    return changed


def _host_of(shard: Shard, events: Events, event: int) -> int:
    """The host of an outcome of an unknown page; -1: nobody knows it."""
    row = shard.hosts.row(page_of(events, event).host)
    return -1 if row is None else row


def page_of(events: Events, event: int) -> PageIdentity:
    """The page of an outcome."""
    return identify(decode(CrawlOutcome, events.records[event].value).url)
