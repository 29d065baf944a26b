"""Which page to crawl at each slot: exactly the most urgent, without a look at every page.

A page's staleness grows evenly between signals, so the time at which its priority will reach a
guard Λ is known: V⁻¹(Λ) (design: maths, "Exact argmax without a scan"). Until then it waits in the
calendar. What is not in the calendar is looked at whenever slots are filled, and the best of it is
the best of all, for certain, if it is not below the guard.

The guard follows what is picked: a little below it, so that about as many pages are looked at as
the next ticks need. It is raised by letting pages go. Lowering it means to place every page anew:
at once where pages are few, a slice at each tick where they are many.
"""

from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from services.scheduler.picking import lines
from services.scheduler.picking.board import (
    PENNED,
    clear_board,
    make_board,
    settle_all,
    settle_touched,
)
from services.scheduler.picking.class_turns import ClassTurns
from services.scheduler.picking.coming import at_hand, begin_tick, let_come
from services.scheduler.picking.filled import Filled, look_over
from services.scheduler.picking.filling import PICK, fill_slots
from services.scheduler.picking.host_sweeps import fill_large_pens
from services.scheduler.picking.level import Level
from services.scheduler.picking.pens import leave_pen
from services.scheduler.picking.priority import HIGHEST_VALUE, terms_of
from services.scheduler.picking.raising import Raising
from services.scheduler.picking.reported import weigh_some
from services.scheduler.picking.scanning import first_guard, lower_guard, place_all
from services.scheduler.picking.space import Space, attached, is_attached
from services.scheduler.picking.stock import (
    SPARE,
    Stock,
    is_crowded,
    patience,
    shed_at_once,
)
from services.scheduler.picking.sweep import Sweep
from services.scheduler.picking.taking_turns import fill_in_turns
from services.scheduler.picking.urgent_tidying import is_untidy, keep_own_entries
from services.scheduler.picking.weighing import weigh_listed
from services.scheduler.picking.wheel import entries_in, memory_of
from services.scheduler.picking.work_share import WorkShare
from services.scheduler.state.rows import Rows
from services.scheduler.state.rules import ShardRules
from services.scheduler.state.selector import Weighed
from services.scheduler.state.shard import Shard

_MOST_SLICES: Final = 16
"""So many more are placed at a tick where slots would stay empty otherwise."""

_NEXT_SKIPPED: Final = 0.7
"""Of the bound below which pages are not looked at, where those above did not fill the slots."""

_HOLD_SECONDS: Final = 60.0
"""Wall seconds for which the guard stays low at least after it had to be lowered, or after the
upper tiers took all slots; or until picks are seen to be worth as much as before."""

_TICK_SECONDS: Final = 0.1
"""Wall seconds in a tick of the calendar."""

Floats: TypeAlias = NDArray[np.float64]


class Calendar:
    """Picks pages for slots. Times never go back."""

    def __init__(self, space: Space, shard_rules: ShardRules) -> None:
        self._space = space
        self._rules = rules = shard_rules.picking
        self._board = make_board(
            0,
            rules.request_timeout,
            shard_rules.failed_retry,
            rules.speed,
            terms_of(rules, space.hosts.objectives),
            rules.shares,
        )
        shares = [rule.share for rule in shard_rules.classes if rule.lane]
        self._classes = ClassTurns(shares, rules.speed) if shares else None
        self._is_ready = False
        self._stock = Stock.of(0, 0.0, 0)
        self._skip_below = 0.0
        """Listed pages that are known to be worth less are not looked at."""
        self._level = Level()
        self._hold_until = -np.inf
        """The guard is not raised before."""
        self._slots = 0
        """How many slots are filled at once."""
        self._more = 1
        """How many times as many a look at all pages is to find."""
        self._random = np.random.default_rng(0)
        self._raising = Raising(self._random, rules.speed)
        self._work = WorkShare()
        self._state["few_pages"] = self._work.few_pages
        self._sweep = Sweep()
        """Placing all pages anew."""
        self.rebuilds = 0
        """Looks at all pages at once."""
        self.sweeps = 0
        """Times that all pages were placed anew, in slices."""
        self.uncertain_picks = 0
        """Picks below the guard, made while pages were placed anew."""

    @property
    def _state(self) -> Any:
        return self._board.state[0]

    @property
    def guard(self) -> float:
        """Pages in the calendar are worth less."""
        return float(self._state["certain_from"])

    @property
    def _listed_from(self) -> float:
        """What listed pages are worth at least; while the guard is lowered, as far below the one
        before as pages are placed by the new one: so many are listed of those below."""
        guard, before = float(self._state["guard"]), float(self._state["certain_from"])
        return before + self._sweep.part(self._space.used) * (guard - before)

    @property
    def candidates(self) -> int:
        """How many pages are looked at when slots are filled: listed and urgent ones."""
        return int(self._state["listed"] + self._state["urgent"])

    @property
    def calendar_bytes(self) -> int:
        """Memory of the calendar."""
        return memory_of(self._board.wheel)

    def prepare(self, now: float) -> None:
        """Look at all pages before slots are to be filled, and before anybody else has the shard.

        Args:
            now: clock seconds; no slot comes before.
        """
        self._stock = Stock.usual(self._space.used)
        self._attach(0)
        self._rebuild(now)
        # Very many may be new: to carry each to its heap would keep the first slots waiting.
        weigh_listed(self._board, now, 0.0, False)
        keep_own_entries(self._board, now)
        listed = self._board.listed["priority"][: self._state["listed"]]
        self._skip_below, self._state["looked_span"] = self._stock.looked_at_first(listed)
        if self._skip_below > 0.0:
            weigh_listed(self._board, now, self._skip_below, True)

    def share_work(self, shards: int, place: int = 0) -> None:
        """So many shards share a thread: each does only its part of what may wait at a tick, and
        not at the same ticks as those of other places."""
        self._work = WorkShare.of(shards, place)
        self._state["few_pages"], self._state["phase"] = self._work.few_pages, self._work.phase

    def touch(self, rows: NDArray[np.int32], *, reweigh: bool = False) -> None:
        """Something happened to these pages; `reweigh`: what may change their tiers, too."""
        if not self._is_ready or not rows.size:
            return
        if self._classes is not None:
            self._classes.touch(rows)
        if is_attached(self._board, self._space) and settle_touched(self._board, rows, reweigh):
            return
        self._attach(rows.size)
        settle_touched(self._board, rows, reweigh)

    def forget(self, row: int) -> None:
        """The page in a row is removed: the row may become another page's, of another host."""
        if self._is_ready and self._space.pages["bucket"][row] == PENNED:
            self._attach(0)
            leave_pen(self._board, row)

    def touch_host(self, number: int) -> None:
        """The limit of a host has changed, or it is of other groups."""
        if self._is_ready and number < self._space.host_count:
            host = self._space.host_rows[number]
            if host["is_parked"]:
                self._attach(0)
                lines.touch_parked(self._board, number)

    def touch_hosts(self, numbers: NDArray[np.int64]) -> None:
        """The same of many."""
        if self._is_ready:
            known = numbers[numbers < self._space.host_count]
            self._attach(0)
            lines.touch_all_parked(self._board, known)

    def touch_lines(self) -> None:
        """The limits of groups have changed, or the shard's parts of them."""
        if self._is_ready:
            self._attach(0)
            lines.touch_lines(self._board)
            lines.drop_stale(self._board)

    def empty_lines(self) -> None:
        """There will be other lines; `touch_hosts` follows for all hosts that are of any."""
        if self._is_ready:
            self._attach(0)
            lines.empty_lines(self._board)

    def select(self, slots: NDArray[np.float64], rate: float, least: float) -> Rows:
        """Fill slots with the most urgent pages, by their priorities at the first slot.

        Args:
            slots: times, rising.
            rate: slots per clock second to expect from now on.
            least: crawl value below which a slot is left empty; 0: never.

        Returns:
            a `PICK` for each slot, row -1 where there is nothing to crawl. Picked pages are in
            flight, and their hosts' tokens are taken.
        """
        picks = np.zeros(slots.size, PICK)
        self._slots, now = slots.size, float(slots[0])
        self._stock = Stock.of(slots.size, rate * self._rules.speed, self._space.used)
        self._space.attempts.reserve(slots.size)
        self._begin(now, slots.size)
        if self._classes is None:
            self._fill_all(slots, picks, now, least)
        else:
            fill = partial(self._fill_all, now=now, least=least)
            self._classes.fill(self._board, self._space.lanes_of, slots, rate, least, picks, fill)
        filled = look_over(picks, self._board.state)
        self.uncertain_picks += filled.unsure
        if filled.slots:
            self._adjust(now, filled)
        return picks

    def _begin(self, now: float, slots: int) -> None:
        """Bring the calendar to the time of the first slot."""
        space, work = self._space, self._work
        if not self._is_ready or entries_in(self._board.wheel) > 4 * space.used + 100_000:
            self._attach(slots)
            self._rebuild(now)
        if is_untidy(self._board):
            self._attach(slots)
            keep_own_entries(self._board, now)
        if self._sweep.goes_on:
            self._attach(slots)
            self._place(max(self._sweep.due(now, space.used), work.slice), now)
        enough = 2 * slots if self._sweep.goes_on else 0
        amounts = work.slice, work.host_slice, enough
        while not is_attached(self._board, space) or not begin_tick(
            self._board, space.used, slots, now, *amounts
        ):
            self._attach(slots + work.host_slice)
        self._place_enough(now, enough)

    def _fill_all(self, slots: Floats, picks: Rows, now: float, least: float) -> None:
        """Fill slots with the most urgent of all pages, however far it must be looked for them."""
        skip_below = self._skip_below
        done = self._fill(now, slots, least, skip_below, picks)
        while done < slots.size and skip_below > 0.0:
            is_first = skip_below == self._skip_below < HIGHEST_VALUE
            skip_below = skip_below * _NEXT_SKIPPED if is_first else 0.0
            done += self._fill(now, slots[done:], least, skip_below, picks[done:])
        while done < slots.size:
            self._look_further(now, slots.size - done)
            done += self._fill(now, slots[done:], least, 0.0, picks[done:])

    @property
    def _may_sweep(self) -> bool:
        return self.guard > 0.0 and self._space.used > self._work.few_pages

    def _fill(
        self, now: float, slots: NDArray[np.float64], least: float, skip_below: float, picks: Rows
    ) -> int:
        fill = fill_in_turns if self._board.terms.in_turns else fill_slots
        must_be_certain = not self._sweep.goes_on
        return int(fill(self._board, now, slots, least, must_be_certain, skip_below, picks))

    def _attach(self, touched: int) -> None:
        self._board = attached(self._board, self._space, touched)

    def _look_further(self, now: float, slots: int) -> None:
        """What is listed does not suffice to be certain: lower the guard."""
        if self._space.used <= self._work.few_pages:
            self._more *= 4
            self._rebuild(now)
        else:
            self._begin_sweep(now, self._stock.many)
            wanted = 2 * slots + SPARE
            let_come(self._board, now, wanted)
            self._place_enough(now, wanted)

    def _rebuild(self, now: float) -> None:
        """Look at all pages, and choose the guard such that enough of them are listed."""
        space, board = self._space, self._board
        used, width = space.used, _TICK_SECONDS * self._rules.speed
        least = self._slots + 2 * self._more * self._stock.wanted
        listed = least if self._is_ready else max(least, self._stock.at_first(used))
        guard = first_guard(board, listed, least, now)
        clear_board(board, used, space.host_count, now, width)
        lines.clear_lines(board)
        self._state["guard"] = self._state["certain_from"] = guard
        fill_large_pens(board, now)
        place_all(board, used)
        self._sweep.end()
        self._is_ready = True
        self.rebuilds += 1

    def _begin_sweep(self, now: float, wanted: int, spared: float = 0.0) -> None:
        """Lower the guard such that so many more are listed: begin to place all pages anew.

        Args:
            now: clock seconds.
            wanted: pages.
            spared: wall seconds until they are needed; 0: they are already.
        """
        if not self._sweep.goes_on:
            speed = self._rules.speed
            then = now + spared * speed
            rows = self._random.integers(0, self._space.used, self._work.sampled)
            self._state["guard"] = lower_guard(self._board, rows, wanted, then)
            self._sweep.begin(now, (spared or self._stock.sweep_seconds) * speed)
            self.sweeps += 1

    def _place_enough(self, now: float, wanted: int) -> None:
        """While the guard is lowered, list what suffices to fill slots."""
        first, found = 0, int(self._state["urgent"])
        for _ in range(_MOST_SLICES):
            if not self._sweep.goes_on:
                break
            found += at_hand(self._board, first, now, wanted - found)
            if found >= wanted:
                break
            first = int(self._state["listed"])
            self._place(self._work.slice, now)

    def _place(self, rows: int, now: float) -> None:
        """Go on with placing pages anew."""
        settle_all(self._board, *self._sweep.take(rows, self._space.used))
        if not self._sweep.goes_on:
            self._state["certain_from"] = self._state["guard"]
            self._hold_until = now + _HOLD_SECONDS * self._rules.speed

    def _adjust(self, now: float, filled: Filled) -> None:
        """Keep about as many pages listed as the next slots need."""
        listed = int(self._state["listed"])
        self._more = max(self._more // 2, 1)
        stock, unsure = self._stock, self._sweep.goes_on
        needed, highest = stock.needed(filled)
        urgent = int(self._state["urgent"])
        is_seen = self._level.note(highest, now, self._rules.speed)
        looked_at = stock.looked_at(filled, listed, urgent, self._level.least, self._listed_from)
        skip_below, self._state["looked_span"] = looked_at
        # Where tiers take turns, other slots may be for what is listed.
        is_blinding = self._board.terms.in_turns and skip_below > HIGHEST_VALUE
        self._skip_below = 0.0 if is_blinding else skip_below
        if is_seen:
            self._hold_until = now
        elif filled.crawls and not filled.by_value:  # the others wait, and will be worth more
            self._hold_until = now + _HOLD_SECONDS * self._rules.speed
        falls, is_held = self._level.falls(now), now < self._hold_until or unsure
        most = stock.most(kept := stock.kept(needed, is_held=is_held, is_falling=falls))
        are_too_many = listed > most and highest > 0.0
        is_blind = unsure or highest == HIGHEST_VALUE or is_crowded(listed, most)
        self._state["is_crowded"] = are_too_many and is_blind
        at_once = shed_at_once(listed, filled.slots + SPARE, self._work.slice)
        amounts = kept, highest, at_once
        if are_too_many and is_blind:
            self._raising.by_sample(self._board, now, *amounts, is_certain=not unsure)
        elif are_too_many:
            far = patience(filled.slots, needed)
            self._raising.by_list(self._board, now, *amounts, far)
        elif stock.is_lean(filled, listed, urgent, is_falling=falls) and self._may_sweep:
            spared = stock.spared_seconds(filled, urgent)
            self._begin_sweep(now, stock.swept(is_falling=falls), spared)

    def weigh(self, now: float, horizon: float, most: int) -> Weighed:
        """Pages that tell what is to be crawled soon, at a bounded cost (`reported`)."""
        return weigh_some(self._board, self._space, self._random, now, horizon, most)


def make_shard(number: int, rules: ShardRules, expected: int = 0) -> Shard:
    """A shard without pages, which a calendar is to pick."""
    return Shard(number, rules, lambda shard: Calendar(shard, rules), expected)
