"""Faults of a scheduler's shards: what they hear, are loaded with, and pick."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

import services.scheduler.flow.handler as flow_handler
import services.scheduler.flow.reader as flow_reader
from services.scheduler.flow import loading
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.loading import shard_rules
from services.scheduler.flow.recovery import restore
from services.scheduler.picking.calendar import Calendar
from services.scheduler.picking.filled import EVERYBODY
from services.scheduler.picking.turns import Turns
from services.scheduler.state import events, group_rows, groups
from services.scheduler.state.hosts import DEPTH, Hosts
from services.scheduler.state.page_classes import ShardClasses
from services.scheduler.state.rules import ShardRules
from services.scheduler.state.shard import Shard
from services.verify.ledger import AWAY
from services.verify.mutants.mutant import Planted, Promise, breaks, does_nothing
from services.verify.simulation.replacing import instead
from services.verify.simulation.sharing import EACH_RATE
from shared.contracts import messages
from shared.contracts.messages import CrawlOutcome
from shared.contracts.objectives import FRESHNESS, HARMONIC
from shared.pacing.groups import Limits
from shared.rules.page_events import FAILED, kinds_of


def _hears_nothing(*_: Any) -> int:
    return 0


@breaks(Promise.BEST)
def news_move_no_page() -> Planted:
    """Pages to which something happened stay where they were in the calendar."""
    return instead(Calendar, "touch", does_nothing)


@breaks(Promise.BEST)
def importance_left_out() -> Planted:
    """All pages are as important as each other when slots are filled."""
    select = Calendar.select

    def select_alike(self: Calendar, *given: Any) -> Any:
        pages = self._space.pages
        importance = pages["importance"].copy()
        pages["importance"] = 1.0
        try:
            return select(self, *given)
        finally:
            self._space.pages["importance"] = importance

    return instead(Calendar, "select", select_alike)


@breaks(Promise.BEST)
def slots_left_empty() -> Planted:
    """A slot is left empty, though there is a page that is worth a crawl."""
    select = Calendar.select

    def select_few(self: Calendar, slots: Any, rate: float, _least: float) -> Any:
        return select(self, slots, rate, 1e30)

    return instead(Calendar, "select", select_few)


@breaks(Promise.BEST, reason_shares=(("new", 0.2), ("max-age", 0.3), ("value", 0.3)))
def parts_confused() -> Planted:
    """Parts of the slots go to other reasons to crawl than they are kept for."""
    select = Calendar.select

    def select_by_others(self: Calendar, *given: Any) -> Any:
        state = self._board.state
        state["shares"] = state["shares"][:, ::-1].copy()
        try:
            return select(self, *given)
        finally:
            self._board.state["shares"] = state["shares"][:, ::-1].copy()

    return instead(Calendar, "select", select_by_others)


@breaks(Promise.BEST, classes=(("news", 8.0, 0.0), ("archive", 0.125, 0.0)))
def weights_left_out() -> Planted:
    """A page whose class becomes another keeps the weight of the one before."""
    change = ShardClasses.change

    def change_number(self: ShardClasses, page: Any, *given: Any) -> None:
        before = page["importance"]
        change(self, page, *given)
        page["importance"] = before

    return instead(ShardClasses, "change", change_number)


@breaks(Promise.BEST, classes=(("news", 1.0, 0.3), ("partner", 1.0, 0.3)))
def turns_of_classes_forgotten() -> Planted:
    """Slots that are kept for classes of pages go to everybody."""
    return instead(Turns, "next", lambda *_: EVERYBODY)


@breaks(Promise.BEST, objectives='{"default": "harmonic"}')
def objectives_unheard() -> Planted:
    """A scheduler crawls all pages for freshness, whatever operators want of their hosts."""
    return instead(Hosts, "intern", _interned_for(FRESHNESS))


@breaks(Promise.BEST, objectives='{"host1.example": {"age": 1.0}, "host2.example": "harmonic"}')
def objectives_of_another_host() -> Planted:
    """A scheduler crawls all pages for what operators want of one host."""
    return instead(Hosts, "intern", _interned_for(HARMONIC))


def _interned_for(objective: int) -> Any:
    intern = Hosts.intern

    def intern_for_one(self: Hosts, name: str) -> int:
        index = intern(self, name)
        if self.objectives is not None:
            self.objectives[index] = objective
        return index

    return intern_for_one


@breaks(Promise.BEST)
def parameters_unheard() -> Planted:
    """A scheduler does not hear what was learned of pages."""
    return instead(Shard, "parameters", _hears_nothing)


@breaks(Promise.SIGNALS)
def signals_unheard() -> Planted:
    """A scheduler does not hear signals."""
    return instead(Shard, "signals", _hears_nothing)


@breaks(Promise.LOST)
def later_signals_lost() -> Planted:
    """A scheduler counts no signal of a page that has some already since its last crawl."""
    apply_signals = events.apply_signals

    def apply_first(pages: Any, *given: Any) -> Any:
        rows, is_later = given[3], given[6]
        is_later &= pages["signals"][rows] == 0
        return apply_signals(pages, *given)

    return instead(events, "apply_signals", apply_first)


@breaks(Promise.TWICE)
def signals_counted_twice() -> Planted:
    """A scheduler counts each signal of a page twice."""
    apply_signals = events.apply_signals

    def apply_twice(*given: Any) -> Any:
        apply_signals(*given)
        return apply_signals(*given)

    return instead(events, "apply_signals", apply_twice)


@breaks(Promise.HOSTS)
def a_token_too_many() -> Planted:
    """A host has half a token more each time that slots are filled."""
    select = Calendar.select

    def select_richly(self: Calendar, *given: Any) -> Any:
        tokens = self._space.host_rows["tokens"]
        tokens[:] = np.minimum(tokens + 0.5, DEPTH)
        return select(self, *given)

    return instead(Calendar, "select", select_richly)


@breaks(Promise.HOSTS)
def limits_unheard() -> Planted:
    """A scheduler does not hear the limits that are set for hosts."""
    return instead(Shard, "take_host_limit", does_nothing)


@breaks(Promise.HOSTS)
def whole_limits_of_groups() -> Planted:
    """Every shard takes the whole limit of a group of hosts for its own."""

    def all_of_it(*_: Any) -> tuple[float, float]:
        return 0.0, 1.0

    return instead(group_rows, "interval_of", all_of_it)


@breaks(Promise.HOSTS, group_crawls_per_second=EACH_RATE)
def whole_default_limit_of_addresses() -> Planted:
    """Every shard takes the whole default limit of an address for its own."""

    def all_of_it(*_: Any) -> tuple[float, float]:
        return 0.0, 1.0

    return instead(group_rows, "even_interval", all_of_it)


@breaks(Promise.HOSTS, group_crawls_per_second=EACH_RATE)
def default_limit_unheard() -> Planted:
    """A scheduler does not hear that all addresses have a limit."""
    follow = groups.HostGroups.follow

    def of_their_own_only(self: Any, limits: Limits, *args: Any) -> None:
        follow(self, Limits(limits.groups), *args)

    return instead(groups.HostGroups, "follow", of_their_own_only)


@breaks(Promise.HOSTS)
def addresses_unheard() -> Planted:
    """A scheduler does not hear which hosts are at one address."""
    return instead(groups.HostGroups, "name", does_nothing)


@breaks(Promise.HOSTS)
def pauses_unheard() -> Planted:
    """A scheduler does not hear that a host asks to be left alone."""
    return instead(Shard, "pause_host", does_nothing)


@breaks(Promise.HOSTS, "kill", "term")
def limits_not_restored() -> Planted:
    """A shard that is loaded has the default limits."""
    load_hosts = loading._load_hosts  # noqa: SLF001

    def without_limits(shard: Shard, snapshot: Any) -> None:
        load_hosts(shard, snapshot)
        shard.hosts.known["rate"] = shard.rules.default_host_rate

    return instead(loading, "_load_hosts", without_limits)


@breaks(Promise.HOSTS)
def open_bounds_unheard() -> Planted:
    """A scheduler does not hear how many requests of a host may be open at once."""
    apply_rules = Hosts.apply_rules

    def apply_others(self: Hosts, index: int, now: float) -> None:
        apply_rules(self, index, now)
        self.rows[index]["most_open"] = 0

    return instead(Hosts, "apply_rules", apply_others)


@breaks(Promise.FORGOTTEN, "kill", "term", estimators=1)
def requests_in_flight_forgotten() -> Planted:
    """A shard that is loaded does not look at what was asked for before."""
    return instead(flow_handler, "restore", _hears_nothing)


@breaks(Promise.FORGOTTEN, "kill", "term", "rebalance")
def in_flight_without_a_deadline() -> Planted:
    """A request of before a shard was loaded waits for its answer for ever."""

    def restore_for_ever(shard: Shard, requests: Any) -> int:
        for_ever = [msgspec.structs.replace(one, deadline_at=math.inf) for one in requests]
        return restore(shard, for_ever)

    return instead(flow_handler, "restore", restore_for_ever)


@breaks(Promise.KILLED, "kill", "term", "rebalance")
def clocks_of_crawlers_believed() -> Planted:
    """A crawl was when its crawler says, though it be before it was asked for."""
    return instead(messages, "crawl_time", lambda crawled_at, _: crawled_at)


@breaks(Promise.FORGOTTEN)
def away_pages_asked_for_soon() -> Planted:
    """A page that leads elsewhere, or is forbidden, is asked for again like one that failed."""

    def as_failed(outcomes: Sequence[CrawlOutcome]) -> Any:
        is_away = [outcome.result in AWAY for outcome in outcomes]
        return np.where(is_away, np.int8(FAILED), kinds_of(outcomes))

    return instead(flow_reader, "kinds_of", as_failed)


@breaks(Promise.FORGOTTEN)
def no_deadline() -> Planted:
    """A request waits for its answer for ever."""

    def patient(*given: Any) -> ShardRules:
        rules = shard_rules(*given)
        return replace(rules, picking=replace(rules.picking, request_timeout=1e9))

    return instead(flow_handler, "shard_rules", patient)


@breaks(Promise.FORGOTTEN)
def removed_pages_stay() -> Planted:
    """A page that was removed is crawled on."""
    return instead(Shard, "remove", lambda *_: False)


@breaks(Promise.KILLED, "kill", "term")
def read_on_from_the_end() -> Planted:
    """A shard that is loaded is read from where its topics end, and not from where it was."""
    assigned = SchedulerHandler.assigned

    async def from_the_end(self: SchedulerHandler, partitions: set[int]) -> Any:
        positions = await assigned(self, partitions)
        _begins, ends = await self._bounds(partitions)
        return {**positions, **ends}

    return instead(SchedulerHandler, "assigned", from_the_end)
