"""One shard: its pages, hosts and URLs in memory, and what events do to them.

Everything here runs in one thread (see `handler`), knows no Kafka and no clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler import events
from services.scheduler.events import Outcomes
from services.scheduler.hosts import Hosts
from services.scheduler.learned import SECONDS_PER_DAY, refresh_pages
from services.scheduler.pages import ACTIVE, NEVER, Rows, clear, empty_pages, grown
from services.scheduler.priority import BY_VALUE
from services.scheduler.selection import FullScan, Rules
from services.scheduler.urls import UrlArena
from shared.contracts.identity import PageIdentity
from shared.contracts.messages import HostParameters, PageUpdate
from shared.store.page_lookup import UNKNOWN, PageLookup
from shared.store.snapshot import PageColumns, ShardSnapshot

_SMALLEST: Final = 256
_MOST_REMEMBERED_REMOVALS: Final = 100_000


@dataclass(frozen=True, slots=True)
class ShardRules:
    """Settings of a shard; clock seconds."""

    selection: Rules
    signal_delay: float
    failed_retry: float
    default_max_age_days: float
    """Infinite: no bound."""
    default_host_rate: float
    """Crawls per second."""


class Shard:
    """The pages of one partition."""

    def __init__(self, number: int, rules: ShardRules, expected: int = 0) -> None:
        self.number = number
        self.rules = rules
        self.hosts = Hosts(rules.default_host_rate)
        self.urls = UrlArena()
        self.pages: Rows = empty_pages(max(_SMALLEST, expected))
        self.used = 0
        """Rows from here on have never been used."""
        self.selector = FullScan(self, rules.selection)
        self.parameter_changes = 0
        """Counts what makes the demand another: parameters, pages, host limits."""
        self.filled_until = NEVER
        """Slots up to here are settled, or are not ours."""
        self.is_caught_up = False
        """Whether all events that were there when the shard was assigned are applied."""
        self._crawls = 0
        self._least_crawled = math.inf
        self._lookup = PageLookup(expected)
        self._free: list[int] = []
        self._removed: dict[int, float] = {}
        self._marginal_value = 0.0

    @classmethod
    def from_snapshot(cls, snapshot: ShardSnapshot, rules: ShardRules) -> "Shard":
        """The shard as Postgres knew it at the snapshot's positions."""
        columns, count = snapshot.pages, snapshot.pages.page_ids.size
        shard = cls(snapshot.shard, rules, count + count // 8)
        host_numbers = shard._load_hosts(snapshot)
        rows = shard.pages[:count]
        rows["page_id"] = columns.page_ids
        rows["host"] = host_numbers[np.searchsorted(snapshot.hosts.host_ids, columns.host_ids)]
        rows["importance"] = columns.importance
        rows["own_alpha"] = columns.unsignalled_change_rate
        rows["kappa"] = columns.signal_evidence
        rows["gamma"] = columns.signal_rate
        rows["signals"] = shard.hosts.learned.weighted(rows["host"], snapshot.pending)
        rows["change_age"] = _change_ages(columns)
        rows["multiplier"] = snapshot.multipliers
        rows["digest"] = events.short_digests(columns.digest)
        for name in ("last_crawled_at", "last_attempt_at", "last_signal_at", "updated_at"):
            rows[name] = getattr(columns, name)
        rows["failures"] = np.minimum(columns.failures, 1000)
        rows["retry_at"] = _retry_times(columns.last_attempt_at, columns.failures, rules)
        rows["max_age"] = shard._max_age_seconds(columns.max_age_days)
        rows["status"] = columns.status
        rows["url_start"] = snapshot.urls.offsets[:-1]
        rows["url_length"] = np.diff(snapshot.urls.offsets)
        shard.urls = UrlArena(snapshot.urls.arena)
        shard.used = count
        every_host = np.ones(len(shard.hosts), np.bool_)
        refresh_pages(shard.pages, count, shard.hosts.learned.tables, every_host)
        shard._lookup.add_many(columns.page_ids, np.arange(count, dtype=np.int32))
        per_host = np.bincount(rows["host"], minlength=len(shard.hosts))
        shard.hosts.rows["pages"][: per_host.size] = per_host
        return shard

    def _load_hosts(self, snapshot: ShardSnapshot) -> NDArray[np.int32]:
        columns = snapshot.hosts
        numbers = np.array([self.hosts.intern(name) for name in columns.names], np.int32)
        rows = self.hosts.rows
        limited = ~np.isnan(columns.max_crawls_per_second)
        rows["rate"][numbers[limited]] = columns.max_crawls_per_second[limited]
        rows["own_limit"][numbers[limited]] = 1
        rows["blocked_until"][numbers] = columns.blocked_until
        self.hosts.learned.load(numbers, columns)
        return numbers

    def _max_age_seconds(self, own_days: NDArray[np.float64]) -> NDArray[np.float64]:
        days = np.where(np.isfinite(own_days), own_days, self.rules.default_max_age_days)
        return np.asarray(days * SECONDS_PER_DAY)

    @property
    def host_rows(self) -> Rows:
        """Rows of the hosts."""
        return self.hosts.rows

    @property
    def host_count(self) -> int:
        """How many hosts are known."""
        return len(self.hosts)

    @property
    def count(self) -> int:
        """How many pages there are."""
        return self.used - len(self._free)

    def rows_of(self, page_ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Rows of pages; -1 where one is unknown."""
        return self._lookup.find_many(page_ids)

    def row_of(self, page_id: int) -> int:
        """Row of a page; -1 if it is unknown."""
        return self._lookup.find(page_id)

    def url_of(self, row: int) -> str:
        """URL of the page in a row."""
        page = self.pages[row]
        return self.urls.get(int(page["url_start"]), int(page["url_length"])).decode()

    def signals(
        self,
        page_ids: NDArray[np.int64],
        observed_at: NDArray[np.float64],
        sources: Sequence[str],
    ) -> int:
        """Count signals.

        Returns:
            how many were about unknown pages.
        """
        rows = self.rows_of(page_ids)
        learned = self.hosts.learned
        weights = learned.weights_of(self.pages["host"][rows], sources)
        events.apply_signals(
            self.pages, learned.tables, rows, observed_at, weights, self.rules.signal_delay
        )
        return self._touched(rows)

    def outcomes(self, outcomes: Outcomes) -> int:
        """Take crawl outcomes.

        Returns:
            how many were about unknown pages.
        """
        rows = self.rows_of(outcomes.page_ids)
        events.apply_outcomes(
            self.pages,
            self.hosts.learned.tables,
            rows,
            outcomes.crawled_at,
            outcomes.results,
            outcomes.requested_us,
            outcomes.digests,
            self.rules.signal_delay,
            self.rules.failed_retry,
        )
        return self._touched(rows)

    def parameters(
        self,
        page_ids: NDArray[np.int64],
        alpha: NDArray[np.float64],
        kappa: NDArray[np.float64],
        gamma: NDArray[np.float64],
    ) -> int:
        """Take what was learned of pages; α and κ are NaN where their hosts' hold.

        Returns:
            how many were unknown.
        """
        rows = self.rows_of(page_ids)
        tables = self.hosts.learned.tables
        events.apply_parameters(self.pages, tables, rows, alpha, kappa, gamma)
        self.parameter_changes += rows.size
        return self._touched(rows)

    def host_parameters(self, messages: Sequence[HostParameters]) -> None:
        """Take what was learned of hosts, and make of it what their pages have."""
        if not messages:
            return
        numbers = [self.hosts.intern(message.host) for message in messages]
        changed = np.zeros(len(self.hosts), np.bool_)
        for number, message in zip(numbers, messages, strict=True):
            self.hosts.learned.take(number, message)
            changed[number] = True
        tables = self.hosts.learned.tables
        self.parameter_changes += int(refresh_pages(self.pages, self.used, tables, changed))
        self.selector.reset()

    def _touched(self, rows: NDArray[np.int32]) -> int:
        known = rows[rows >= 0]
        self.selector.touch(known)
        return int(rows.size - known.size)

    def upsert(self, identity: PageIdentity, update: PageUpdate, updated_at: float) -> bool:
        """Add a page or change it.

        Returns:
            whether it took effect: a newer update may have been there before.
        """
        row = self.row_of(identity.page_id)
        if row == UNKNOWN:
            if self._removed.get(identity.page_id, NEVER) > updated_at:
                return False
            row = self._add(identity)
            self._removed.pop(identity.page_id, None)
        page = self.pages[row]
        if page["updated_at"] > updated_at:
            return False
        page["updated_at"] = updated_at
        page["status"] = ACTIVE
        if update.importance is not None:
            page["importance"] = update.importance
        if update.max_age_days is not None:
            page["max_age"] = update.max_age_days * SECONDS_PER_DAY
        self.parameter_changes += 1
        if update.crawled_at is not None:
            # The copy that is held already was crawled then.
            for name in ("last_crawled_at", "last_attempt_at"):
                page[name] = max(page[name], update.crawled_at)
        self.selector.touch(np.array([row], np.int32))
        return True

    def _add(self, identity: PageIdentity) -> int:
        row = self._free.pop() if self._free else self._next_row()
        url = identity.url.encode()
        page = self.pages[row]
        page["page_id"] = identity.page_id
        page["host"] = host = self.hosts.intern(identity.host)
        page["importance"] = 1.0
        page["alpha"] = self.hosts.learned.tables.alpha[host]
        page["kappa"] = self.hosts.learned.tables.kappa[host]
        page["gamma"] = 0.0
        page["max_age"] = self.rules.default_max_age_days * SECONDS_PER_DAY
        page["url_start"] = self.urls.add(url)
        page["url_length"] = len(url)
        self.hosts.rows[host]["pages"] += 1
        self._lookup.add(identity.page_id, row)
        return row

    def _next_row(self) -> int:
        if self.used == self.pages.size:
            self.pages = grown(self.pages, 2 * self.used, empty_pages(self.used))
        self.used += 1
        return self.used - 1

    def remove(self, page_id: int, updated_at: float) -> bool:
        """Forget a page for good.

        Returns:
            whether it took effect.
        """
        row = self.row_of(page_id)
        if row != UNKNOWN and self.pages[row]["updated_at"] > updated_at:
            return False
        if len(self._removed) >= _MOST_REMEMBERED_REMOVALS:
            self._removed.pop(next(iter(self._removed)))
        self._removed[page_id] = max(updated_at, self._removed.get(page_id, NEVER))
        if row == UNKNOWN:
            return False
        self._lookup.remove(page_id)
        self.hosts.rows[self.pages[row]["host"]]["pages"] -= 1
        self.urls.forgotten += int(self.pages[row]["url_length"])
        clear(self.pages[row : row + 1])
        self._free.append(row)
        self.parameter_changes += 1
        if 2 * self.urls.forgotten > self.urls.size:
            self._compact_urls()
        return True

    def _compact_urls(self) -> None:
        living = np.flatnonzero(self.pages["page_id"][: self.used] >= 0)
        starts, lengths = self.pages["url_start"][living], self.pages["url_length"][living]
        self.urls, self.pages["url_start"][living] = self.urls.compact(starts, lengths)

    def limit_host(
        self, name: str, rate: float | None, blocked_until: float | None, now: float
    ) -> None:
        """Change how often a host may be crawled, and until when not at all."""
        host = self.hosts.intern(name)
        self.hosts.set_limit(host, rate, now)
        self.hosts.set_block(host, blocked_until)
        self.parameter_changes += 1

    def pause_host(self, host: int, until: float) -> None:
        """Leave a host alone at least until a time."""
        row = self.hosts.rows[host]
        row["blocked_until"] = max(row["blocked_until"], until)

    def note_crawls(self, crawls: Rows) -> None:
        """Remember picks for the next report."""
        self._crawls += crawls.size
        values = crawls["value"][crawls["tier"] == BY_VALUE]
        if values.size:
            self._least_crawled = min(self._least_crawled, float(values.min()))

    def take_crawl_notes(self) -> tuple[int, float]:
        """Picks since the last call, and the crawl value of the least valuable of late."""
        crawls, self._crawls = self._crawls, 0
        if self._least_crawled < math.inf:
            self._marginal_value, self._least_crawled = self._least_crawled, math.inf
        return crawls, self._marginal_value


def _change_ages(columns: PageColumns) -> NDArray[np.float64]:
    """Days from the last change of each page to its last crawl; infinite: no change was seen."""
    changed = columns.last_changed_at > NEVER
    ages = np.subtract(
        columns.last_crawled_at,
        columns.last_changed_at,
        out=np.full(changed.size, np.inf),
        where=changed,
    )
    return np.asarray(ages / SECONDS_PER_DAY)


def _retry_times(
    last_attempt_at: NDArray[np.float64], failures: NDArray[np.int32], rules: ShardRules
) -> NDArray[np.float64]:
    doublings = np.clip(failures - 1.0, 0.0, 60.0)
    wait = np.minimum(rules.failed_retry * 2.0**doublings, events.LONGEST_RETRY_SECONDS)
    return np.where(failures > 0, last_attempt_at + wait, NEVER)
