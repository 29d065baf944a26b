"""One shard: its pages, hosts and URLs in memory, and what events do to them.

Everything here runs in one thread (see `handler`), knows no Kafka and no clock.
"""

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from services.scheduler.state import events
from services.scheduler.state.absent_pages import AbsentPages
from services.scheduler.state.attempts import (
    Attempts,
    begin_request,
    close_attempt,
    take_back_requests,
)
from services.scheduler.state.batches import BatchTruth, leave_batch
from services.scheduler.state.changes import Changes
from services.scheduler.state.crawls import Outcomes, apply_outcomes, take_copy
from services.scheduler.state.groups import CrawlRates, HostGroups
from services.scheduler.state.hosts import Hosts, list_pages, unlist_page
from services.scheduler.state.learned_hosts import rate_by_host
from services.scheduler.state.open_requests import OpenRequests
from services.scheduler.state.packing import take_update, update_steps, updated_steps_of
from services.scheduler.state.page_classes import ShardClasses
from services.scheduler.state.refreshing import HostRefreshes
from services.scheduler.state.report_notes import ReportNotes
from services.scheduler.state.rows import ACTIVE, ASLEEP, NEVER, Rows, clear, reserved_rows
from services.scheduler.state.rules import ShardRules
from services.scheduler.state.selector import Selector
from services.scheduler.state.signal_times import SignalTimes
from services.scheduler.state.spent_tokens import SpentTokens
from services.scheduler.state.unanswered import Unanswered
from services.scheduler.state.updating import apply_update
from services.scheduler.state.url_arena import UrlArena
from shared.contracts.identity import PageIdentity
from shared.contracts.layout import ALONE
from shared.contracts.messages import HostLimit, HostParameters, PageUpdate
from shared.store.class_numbers import NO_CLASS
from shared.store.directories import directory_of
from shared.store.last_imports import NO_IMPORT
from shared.store.page_lookup import UNKNOWN, PageLookup
from shared.store.removals import Removals
from shared.store.reserved import grown
from shared.units import SECONDS_PER_DAY

_SMALLEST: Final = 256


class Shard:
    """The pages of one partition."""

    def __init__(
        self,
        number: int,
        rules: ShardRules,
        make_selector: Callable[["Shard"], Selector],
        expected: int = 0,
    ) -> None:
        """Make a shard without pages.

        Args:
            number: its partition.
            rules: what it goes by.
            make_selector: makes what picks its pages; called once, before there are any.
            expected: pages for which memory is set aside.
        """
        self.number = number
        self.rules = rules
        self.hosts = Hosts(rules.default_host_rate, rules.picking.objectives)
        self.groups = HostGroups(self)
        self.urls = UrlArena()
        self.pages, self.records = reserved_rows(max(_SMALLEST, expected))
        self.attempts = Attempts()
        self.signal_times = SignalTimes()
        self.batches = BatchTruth()
        self.used = 0
        """Rows from here on have never been used."""
        self.classes = ShardClasses(rules.classes)
        self.selector = make_selector(self)
        self.open_requests, self.unanswered = OpenRequests(self), Unanswered(self)
        self.refreshes = HostRefreshes(self)
        self.changes = Changes()
        self.filled_until = NEVER
        """Slots up to here are settled, or are not ours."""
        self.is_caught_up, self.is_held = False, False
        """Whether all events that were there when the shard was assigned are applied; and whether
        it is about to be split: then nothing is picked."""
        self.spent: SpentTokens | None = None
        self.layout, self.loaded_epoch, self.named_until, self.claim = ALONE, 0, 0, ""
        """How the hosts are shared out, and the epoch of the shard's owner among the estimators,
        as it was loaded; the offset up to which `page-updates` are read since then; and the fencing
        token by which it was loaded."""
        self.epochs: dict[str, int] = {}
        """Topic (without prefix) → the newest epoch that was read there. By topic: what an owner
        before announced on another one may not be read yet."""
        self.notes = ReportNotes()
        self.removals = Removals()
        self.imported = NO_IMPORT
        """The last import whose pages are here (`shared.store.imports_log`)."""
        self.lookup = PageLookup(expected)
        self._free: list[int] = []
        self._removals = 0
        self.absent = AbsentPages()

    def lanes_of(self, rows: NDArray[np.int32] | slice) -> NDArray[np.uint8]:
        """Which of the classes with shares pages are of, by their rows; 0: none."""
        return np.take(self.classes.lanes, self.records["page_class"][: self.used][rows])

    @property
    def host_rows(self) -> Rows:
        """Rows of the hosts."""
        return self.hosts.known

    @property
    def group_rows(self) -> Rows:
        """Rows of the groups of hosts that have limits."""
        return self.groups.rows

    @property
    def host_count(self) -> int:
        """How many hosts are known."""
        return len(self.hosts)

    @property
    def count(self) -> int:
        """How many pages there are."""
        return self.used - len(self._free) - self._removals

    def prepare(self, now: float) -> None:
        """Do what slots from `now` (clock seconds) on, and signals, would do at first."""
        self.batches.arrays(self.signal_times.size)
        self.selector.prepare(now)

    def crawl_rates(self) -> CrawlRates:
        """What each host can take, and each group."""
        return self.groups.crawl_rates(self.open_requests.crawl_rates())

    def in_flight(self, now: float) -> int:
        """Requests that are not answered and have not timed out."""
        return int((self.attempts.rows["deadline"][1:] > now).sum())

    def rows_of(self, page_ids: NDArray[np.int64]) -> NDArray[np.int32]:
        """Rows of pages; -1 where one is unknown."""
        return self.lookup.find_many(page_ids)

    def row_of(self, page_id: int) -> int:
        """Row of a page; -1 if it is unknown."""
        return self.lookup.find(page_id)

    def url_of(self, row: int) -> str:
        """URL of the page in a row."""
        return self.urls.get(row)

    def page_ids_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Ids of the pages in some rows."""
        return np.asarray(self.lookup.ids[rows])

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
        slots = learned.slots_of(np.where(rows >= 0, self.pages["host"][rows], -1), sources)
        is_later = self.signal_times.note(rows, slots, observed_at)
        events.apply_signals(
            self.pages,
            self.records,
            self.attempts.rows,
            learned.tables,
            rows,
            slots,
            observed_at,
            is_later,
            self.signal_times.arrays,
            self.batches.arrays(self.signal_times.size, rows.size),
            self.rules.signal_delay,
            self.rules.failed_retry,
        )
        self.absent.signalled(page_ids, rows == UNKNOWN, observed_at, sources)
        return self._touched(rows)

    def outcomes(self, outcomes: Outcomes, rows: NDArray[np.int32] | None = None) -> int:
        """Take crawl outcomes.

        Args:
            outcomes: in order of arrival.
            rows: of their pages, if they were looked up already.

        Returns:
            how many were about unknown pages.
        """
        rows = self.rows_of(outcomes.page_ids) if rows is None else rows
        unanswered = self.unanswered.among(rows)
        answered, moved = apply_outcomes(
            self.pages,
            self.records,
            self.attempts.reserve(rows.size),
            self.hosts.learned.tables,
            self.signal_times.arrays,
            self.batches.arrays(self.signal_times.size),
            rows,
            outcomes,
            self.rules.signal_delay,
            self.rules.failed_retry,
        )
        self.notes.answered += answered
        self.unanswered.answered(unanswered)
        self.open_requests.answered(outcomes.page_ids, outcomes.crawled_at)
        self.selector.touch(moved, reweigh=True)
        self.absent.answered(absent := outcomes.page_ids[rows == UNKNOWN])
        return int(absent.size)

    def parameters(
        self,
        page_ids: NDArray[np.int64],
        alpha: NDArray[np.float64],
        kappa: NDArray[np.float64],
        gamma: NDArray[np.float64],
        activity: NDArray[np.uint8] | None = None,
    ) -> int:
        """Take what was learned of pages; α and κ are NaN where their hosts' hold.

        Returns:
            how many were unknown.
        """
        rows = self.rows_of(page_ids)
        tables = self.hosts.learned.tables
        active = np.zeros(rows.size, np.uint8) if activity is None else activity
        learned = (alpha, kappa, gamma, active)
        events.apply_parameters(self.pages, self.records, tables, rows, *learned)
        self.changes.learned += rows.size
        return self._touched(rows)

    def host_parameters(self, messages: Sequence[HostParameters]) -> None:
        """Take what was learned of hosts, and make of it what their pages have."""
        self.refreshes.take(messages)
        self.refreshes.go_on()

    def _touched(self, rows: NDArray[np.int32]) -> int:
        unknown = int(np.count_nonzero(rows == UNKNOWN))
        self.selector.touch(rows[rows != UNKNOWN] if unknown else rows)
        return unknown

    def upsert(
        self,
        identity: PageIdentity,
        update: PageUpdate,
        updated_at: float,
        *,
        is_stored: bool = False,
    ) -> bool:
        """Add a page or change it; `is_stored`: so the database has it.

        Returns:
            whether it took effect: a newer update may have been there before, or its class would
            be one too many.
        """
        number = self.classes.number_of(update.page_class, is_stored=is_stored)
        if number is None:
            self.classes.leave_out(identity.page_id, updated_at)
            return False
        row = self.row_of(identity.page_id)
        if row == UNKNOWN:
            if self.removals.of(identity) > updated_at:
                return False
            row = self._add(identity)
            self.removals.forget(identity.page_id)
        page, record = self.pages[row], self.records[row]
        if not take_update(record, updated_at):
            return False
        attempts, rules = self.attempts.reserve(1), self.rules
        if update.crawled_at is not None:
            weights = self.hosts.learned.tables.weights[page["host"]]
            waiting = self.signal_times.arrays, self.batches.arrays(self.signal_times.size)
            own = page, record, attempts, weights, *waiting, row
            take_copy(*own, update.crawled_at, rules.signal_delay, rules.failed_retry)
        apply_update(page, record, attempts, self.classes, rules, update, number, updated_at)
        self.changes.told += 1
        self.selector.touch(np.array([row], np.int32), reweigh=True)
        return True

    def _add(self, identity: PageIdentity) -> int:
        row = self._free.pop() if self._free else self._next_row()
        page = self.pages[row]
        clear(self.pages[row : row + 1], self.records[row : row + 1])
        page["status"] = ACTIVE
        page["host"] = host = self.hosts.intern(identity.host)
        page["importance"] = 1.0
        self.classes.pages[NO_CLASS] += 1
        tables = self.hosts.learned.tables
        self.records[row]["directory"] = directory_of(identity.url)
        page["alpha"] = rate_by_host(page, self.records[row], tables)
        page["kappa"] = tables.kappa[host]
        page["max_age"] = self.rules.default_max_age_days * SECONDS_PER_DAY
        list_pages(self.pages, self.records, self.hosts.rows, np.array([row], np.int32))
        self.signal_times.forget(row)
        self.urls.set(row, identity.url.encode())
        self.lookup.add(identity.page_id, row)
        self.unanswered.came(identity.page_id)
        rows = np.array([row], np.int32)
        asked = self.absent.take(identity.page_id)
        if asked is not None and self.unanswered.are_later(rows, np.array(asked[:1]))[0]:
            attempts, (requested_us, deadline) = self.attempts.reserve(1), asked
            begin_request(attempts, page, deadline, requested_us, self.rules.failed_retry)
            self.unanswered.asked(rows)
        return row

    def _next_row(self) -> int:
        if self.used == self.pages.size:
            self.pages = grown(self.pages, 2 * self.used)
        if self.used == self.records.size:
            self.records = grown(self.records, 2 * self.used)
        self.used += 1
        self.pages[self.used - 1]["bucket"] = ASLEEP
        return self.used - 1

    def remove(self, page_id: int, updated_at: float, *, for_good: bool = False) -> bool:
        """Forget a page; `for_good`: the database keeps nothing of it either.

        Returns:
            whether it took effect.
        """
        row = self.row_of(page_id)
        if row != UNKNOWN and updated_steps_of(self.records[row]) > update_steps(updated_at):
            return False
        if row == UNKNOWN:
            self.removals.note_again(page_id, updated_at, for_good=for_good)
            return False
        self.removals.note(page_id, updated_at, for_good=for_good)
        self.lookup.remove(page_id)
        self.urls.forget(row)
        self.selector.forget(row)
        if (place := self.signal_times.place_of(row)) != UNKNOWN:
            leave_batch(self.batches.arrays(self.signal_times.size), place)
        self.absent.removed(page_id, self.pages[row], self.attempts.rows)
        self.unanswered.removed(page_id, row)
        close_attempt(self.attempts.rows, self.pages[row])
        self.classes.pages[self.records[row]["page_class"]] -= 1
        clear(self.pages[row : row + 1], self.records[row : row + 1])
        freed = unlist_page(self.pages, self.records, self.hosts.rows, row)
        if freed.size:
            self.refreshes.restart(int(self.pages[row]["host"]))
        self._removals += 1 - freed.size
        self._free += freed.tolist()
        self.changes.told += 1
        return True

    def limit_host(self, name: str, rate: float | None, until: float | None, now: float) -> None:
        """Operators limit a host, and block it until a time; None: the default, and no block."""
        self.take_host_limit(HostLimit(name, rate, until), now)

    def take_host_limit(self, message: HostLimit, now: float, said_at: float | None = None) -> None:
        """Take what operators, or crawlers for robots.txt, said of a host; None: now."""
        host = self.hosts.intern(message.host)
        self.hosts.say(host, message, now if said_at is None else said_at)
        self._apply_rules(host, now)

    def pause_host(self, host: int, until: float, now: float) -> None:
        """A host asks to be left alone until a time."""
        if self.hosts.change_rules(host).ask(until):
            self._apply_rules(host, now)

    def note_reached(self, host: int, reached: int, time: float, now: float) -> None:
        """A crawl at a time reached a host (1), or did not (−1), ...: see `HostRules.note`."""
        if self.hosts.change_rules(host).note(reached, time):
            self._apply_rules(host, now)

    def _apply_rules(self, host: int, now: float) -> None:
        self.hosts.apply_rules(host, now)
        self.open_requests.follow(host)
        self.selector.touch_host(host)
        self.changes.told += 1

    def take_back(self, rows: NDArray[np.int64]) -> None:
        """Requests are not sent after all: their pages are not in flight."""
        first = self.rules.failed_retry
        take_back_requests(self.pages, self.attempts.rows, rows.astype(np.int64), first)
        self.open_requests.taken_back(self.page_ids_of(rows))
        self.selector.touch(rows.astype(np.int32))

    def select(self, slots: NDArray[np.float64], rate: float, least: float) -> Rows:
        """Fill slots (see `Selector.select`)."""
        self.absent.time_out(float(slots[0]))
        self.open_requests.time_out(float(slots[0]))
        picks = self.selector.select(slots, rate, least)
        self.open_requests.picked(picks["row"])
        self.unanswered.asked(picks["row"])
        return picks
