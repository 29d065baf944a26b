"""Picks beside a look at every page: the rules of picking once more, page by page.

Whoever fills slots goes by what is in memory, and so does the look: whether that is right, others
check. Nothing is shared with the scheduler but its rows and the value of a page.
"""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from services.scheduler.picking.calendar import Calendar
from services.scheduler.state.rules import PickingRules
from services.verify.checks.finding import MOST_EXAMPLES, Finding
from services.verify.simulation.clocks import BEGINNING
from services.verify.simulation.group_look import GroupLook
from services.verify.simulation.replacing import instead
from services.verify.simulation.turn_look import ClassLook, TurnLook
from shared.policy.objectives import objective_value_scalar
from shared.store.page_status import ACTIVE, AWAY
from shared.units import SECONDS_PER_DAY

_TOLERANCE: Final = 2e-6
"""Relative: values are in single precision."""

_OVER_AGE: Final = 1
_SECONDS_APART: Final = 1e-3
"""Pages whose times beyond their maximum age differ by less are as late as each other."""

_FOR_EVER: Final = 1e12
"""Seconds, of a page without a maximum age."""

_DEPTH: Final = 2.0
"""Crawls of a host that may come at once, unless its crawls are to come evenly."""

_CLAIM_LOST: Final = 3
"""After so many failures in a row a page goes by its value."""

_CONFIRMED: Final = 3
"""404s in a row that say that a page is gone; one that is not was brought back since."""

_ROUNDING: Final = 1e-6
"""Part of a token."""

Rank = tuple[int, float]
"""Tier, and what counts within it."""


@dataclass(slots=True)
class Looks:
    """What was found."""

    picks: int = 0
    uncertain: int = 0
    """Picks that the scheduler itself counts as uncertain, and were left out."""
    wrong: int = 0
    examples: list[str] = field(default_factory=list)

    def finding(self) -> Finding:
        """As a check."""
        what = "what is picked is what a look at every page would pick"
        figures = {"uncertain": self.uncertain}
        return Finding("picks", what, self.wrong, self.picks, self.examples, figures)


class _Look:
    """A shard as it is before slots are filled."""

    def __init__(self, calendar: Calendar, now: float) -> None:
        space = calendar._space  # noqa: SLF001
        attempts, pages = space.attempts.rows, space.pages[: space.used]
        rules = calendar._rules  # noqa: SLF001
        self.hosts = space.host_rows[: space.host_count].copy()
        self.groups = [GroupLook(row) for row in space.group_rows]
        self.ranks: dict[int, Rank] = {}
        """Row → of the pages that may be crawled, host limits aside."""
        due = pages["last_crawled_at"] + np.minimum(pages["max_age"].astype(np.float64), _FOR_EVER)
        is_unsure = (pages["last_crawled_at"] > now) | (np.abs(now - due) < _SECONDS_APART)
        self.unsure = set(np.flatnonzero(is_unsure).tolist())
        """Rows of pages that were crawled after the slot, which is filled late, or come to their
        maximum age with it, but for rounding: worth anything."""
        self.host_of = pages["host"].tolist()
        self.lane_of = space.lanes_of(slice(None)).tolist()
        for row, page in enumerate(pages):
            attempt = attempts[page["attempt"]] if page["attempt"] else None
            objective = rules.objectives.of(space.hosts.names[int(page["host"])])
            rank = _rank(page, attempt, now, rules, objective)
            if rank is not None and row not in self.unsure:
                self.ranks[row] = rank

    def usable(self, at: float) -> tuple[set[int], set[int]]:
        """Hosts that may be crawled at a time; and those of which it is a matter of rounding."""
        found, maybe = set(), set()
        for number, host in enumerate(self.hosts):
            tokens, since = float(host["tokens"]), at - float(host["filled_at"])
            # What is in a bucket came until it was filled: maybe after a slot that is filled late.
            if host["rate"] <= 0.0 or host["blocked_until"] > at or since < 0.0:
                continue
            if host["most_open"] and host["open_left"] < 1:
                continue
            now = tokens + since * float(host["rate"])
            opens = [self.groups[number].open_at(at) for number in _groups_of(host)]
            least, most = (all(is_open) for is_open in zip((True, True), *opens, strict=True))
            if (tokens >= 1.0 or now >= 1.0 + _ROUNDING) and least:
                found.add(number)
            elif now >= 1.0 - _ROUNDING and most:
                maybe.add(number)
        return found, maybe

    def crawl(self, row: int, at: float) -> None:
        """A page is crawled: it is in flight, and its host has a token less."""
        self.ranks.pop(row, None)
        host = self.hosts[self.host_of[row]]
        since = max(at - float(host["filled_at"]), 0.0)
        if since > 0.0:
            host["tokens"] = min(_depth(host), float(host["tokens"]) + since * float(host["rate"]))
            host["filled_at"] = at
        host["tokens"] -= 1.0
        host["open_left"] -= 1
        for number in _groups_of(host):
            self.groups[number].crawl(at)


def _groups_of(host: Any) -> list[int]:
    """Numbers of the groups of a host that have limits."""
    return [int(host[place]) for place in ("group", "named") if host[place]]


def _depth(host: Any) -> float:
    return 1.0 if host["is_paced"] else _DEPTH


def _rank(page: Any, attempt: Any, now: float, rules: PickingRules, objective: int) -> Rank | None:
    """How urgent a page is; None: it is not to be crawled now."""
    is_gone = page["status"] in AWAY and attempt is not None
    if page["status"] != ACTIVE and not is_gone:
        return None
    failures, asked, is_urgent, is_anew = 0, -math.inf, False, False
    if attempt is not None:
        asked = float(attempt["urgent_at"])
        is_urgent = -math.inf < asked <= now
        tried = max(float(attempt["last_attempt_at"]), int(attempt["requested_us"]) / 1e6)
        is_anew = is_urgent and asked > tried
        if attempt["deadline"] > now or (attempt["retry_at"] > now and not is_anew):
            return None
        is_unanswered = attempt["deadline"] > -math.inf
        was_gone = not is_gone and int(attempt["misses"]) >= _CONFIRMED
        failures = 1 if was_gone else int(attempt["failures"])
        failures += int(attempt["unanswered"]) + is_unanswered
    importance = float(page["importance"])
    has_claim = not is_gone and failures < _CLAIM_LOST and asked <= now
    if is_anew or (is_urgent and has_claim):
        return 3, importance
    return _rank_by_age(page, now, rules, objective, has_claim=has_claim)


def _rank_by_age(
    page: Any, now: float, rules: PickingRules, objective: int, *, has_claim: bool
) -> Rank | None:
    """How urgent a page is that nobody asks for."""
    importance, crawled_at = float(page["importance"]), float(page["last_crawled_at"])
    if crawled_at + rules.least_interval > now:
        return None
    age = now - crawled_at
    if has_claim and age == math.inf:
        return 2, importance
    value = importance * _value(page, age, objective) if importance > 0.0 else 0.0
    if has_claim and age >= page["max_age"] and value >= rules.least_value:
        return _OVER_AGE, age - float(page["max_age"])
    return (0, value) if value > 0.0 else None


def _value(page: Any, age: float, objective: int) -> float:
    parameters = float(page["alpha"]), float(page["kappa"]), float(page["gamma"])
    days, signals = age / SECONDS_PER_DAY, float(page["signals"])
    return float(objective_value_scalar(objective, *parameters, days, signals))


def _judge(
    looks: Looks,
    look: _Look,
    picks: Any,
    least: float,
    turns: TurnLook | None,
    classes: ClassLook | None,
) -> Iterator[str]:
    for pick in picks:
        at, row = float(pick["time"]), int(pick["row"])
        usable, maybe = look.usable(at)
        of_hosts = [(rank, look.host_of[r]) for r, rank in look.ranks.items()]
        ours = [rank for rank, host in of_hosts if host in usable]
        best = max(ours, default=None)
        looks.picks += 1
        where = f"at {at - BEGINNING:.6f}"
        if classes is not None:
            above = least * (1.0 + _TOLERANCE)
            waiting = {
                look.lane_of[r]
                for r, (tier, weight) in look.ranks.items()
                if look.host_of[r] in usable and (tier > 0 or weight > above)
            }
            for lane in classes.take(int(pick["lane"]), waiting):
                yield f"{where}: class {lane} waits for longer than its part allows"
        if row < 0:
            if best is not None and (best[0] > 0 or best[1] > least * (1.0 + _TOLERANCE)):
                yield f"{where}: nothing is picked, and there is a page of {best}"
            continue
        rank = look.ranks.get(row) if look.host_of[row] in usable | maybe else None
        if lane := int(pick["lane"]):
            of_class = [r for r in look.ranks if look.lane_of[r] == lane]
            best = max((look.ranks[r] for r in of_class if look.host_of[r] in usable), default=None)
            if look.lane_of[row] != lane:
                yield f"{where}: row {row} is picked for class {lane}, of which it is not"
        if rank is None and row not in look.unsure:
            yield f"{where}: row {row} is picked, which may not be crawled now"
        elif rank is not None and turns is not None and not lane:
            maybe_ours = [rank for rank, host in of_hosts if host in maybe]
            if not _is_turn(turns, ours, maybe_ours, rank[0], least):
                yield f"{where}: row {row} of {rank} is picked, whose turn it is not"
            best = max((other for other in ours if other[0] == rank[0]), default=None)
        if rank is not None and best is not None and not _is_as_good(rank, best):
            yield f"{where}: row {row} of {rank} is picked, and there is one of {best}"
        look.crawl(row, at)


def _is_turn(
    turns: TurnLook, ours: Sequence[Rank], maybe: Sequence[Rank], tier: int, least: float
) -> bool:
    """Whether it is the turn of a tier, which takes it then."""
    above, about = least * (1.0 + _TOLERANCE), least * (1.0 - _TOLERANCE)
    sure = {other for other, weight in ours if other > 0 or weight > above}
    unsure = {other for other, weight in (*ours, *maybe) if other > 0 or weight >= about}
    found = [turn for turn in turns.allowed(sure, unsure) if turn[1] == tier]
    if found:
        turns.take(found[0])
    return bool(found)


def _is_as_good(rank: Rank, best: Rank) -> bool:
    apart = _SECONDS_APART if rank[0] == _OVER_AGE else 0.0
    return rank > best or (
        rank[0] == best[0] and math.isclose(rank[1], best[1], rel_tol=_TOLERANCE, abs_tol=apart)
    )


@contextmanager
def every_pick_looked_at(looks: Looks) -> Iterator[None]:
    """Compare each pick of all shards for as long as this lasts."""
    select = Calendar.select
    turns_of: WeakKeyDictionary[Calendar, TurnLook] = WeakKeyDictionary()
    classes_of: WeakKeyDictionary[Calendar, ClassLook] = WeakKeyDictionary()

    def select_and_look(self: Calendar, slots: Any, rate: float, least: float) -> Any:
        look, uncertain = _Look(self, float(slots[0])), self.uncertain_picks
        if shares := self._rules.shares:
            turns_of.setdefault(self, TurnLook(shares))
        if lanes := [rule.share for rule in self._space.rules.classes if rule.lane]:  # type: ignore[attr-defined]
            classes_of.setdefault(self, ClassLook(lanes))
        turns, classes = turns_of.get(self), classes_of.get(self)
        picks = select(self, slots, rate, least)
        if self.uncertain_picks > uncertain or (turns is not None and look.unsure):
            looks.uncertain += len(picks)
            if turns is not None:
                turns.follow(self._state)
            if classes is not None:
                had = self._classes._turns  # type: ignore[union-attr]  # noqa: SLF001
                classes.follow(had.tags[1:].tolist(), had.virtual_time)
            return picks
        timed = [
            {"time": at, "row": pick["row"], "lane": pick["lane"]}
            for at, pick in zip(slots, picks, strict=True)
        ]
        found = list(_judge(looks, look, timed, least, turns, classes))
        looks.wrong += len(found)
        looks.examples += found[: MOST_EXAMPLES - len(looks.examples)]
        return picks

    with instead(Calendar, "select", select_and_look):
        yield
