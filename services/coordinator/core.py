"""The coordination itself: messages in, the next `multipliers` out. Pure: times are arguments."""

import math
from dataclasses import dataclass, replace

from msgspec import structs

from services.coordinator import reasons
from services.coordinator.allotment import ADOPTED, Change, Decision, Fleet
from services.coordinator.default_groups import DefaultLimit
from services.coordinator.groups import GroupLimits
from services.coordinator.solver import check_curve
from services.coordinator.usage import Made
from shared.contracts.codec import BadMessage
from shared.contracts.layout import MOST_SHARDS
from shared.contracts.messages import Bandwidth, DemandCurve, Multipliers
from shared.pacing.arranging import AHEAD_SECONDS, Owed
from shared.pacing.budget import Budget, Stretch
from shared.pacing.groups import NO_LIMITS, Limits
from shared.pacing.slots import SlotPlan, SlotTimeline, first_moment, next_multipliers

REFRESH_SECONDS = 5.0
"""The multipliers are said again at least so often (wall), changed or not."""

CLOCKS_AGREE_SECONDS = 5.0
"""Two reports that were made and heard at intervals which differ by more (wall) are of a clock that
was set in between: what they say of the time between them is left out."""

PLANNING_SECONDS = 1.0
"""In a ramp λ₀ and the shares are for the rate so much later (wall)."""

LONGEST_LEAD_SECONDS = 10.0
"""Decisions do not take effect later than this (wall), however slow the broker is."""

_LEAD_DECAY = 0.9
"""With each message that comes in time the lead goes back a little to what is configured."""

KEPT_SECONDS = 60.0
"""Plans are remembered for so long (wall), to know how many slots a shard had between reports."""

_FAR_AHEAD_SECONDS = 60.0
"""Multipliers that take effect later than this (wall), and than we look ahead ourselves, belong to
a clock that ran ahead of ours."""

MOST_WHY = 1000
"""Characters that a message has for its reason."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The time, on both clocks."""

    clock: float
    """Unix seconds of the injected clock."""
    wall: float
    """Monotonic seconds."""
    speed: float = 1.0
    """Clock seconds in one of the wall."""
    stepped: float = 0.0
    """By how many clock seconds the clock was set since the process began."""


class Coordination:
    """Keeps the last of everything, and says what holds next."""

    def __init__(
        self,
        silent_after_seconds: float,
        lead_seconds: float,
        group_crawls_per_second: float | None = None,
        *,
        work_conserving: bool = True,
    ) -> None:
        """Start knowing nothing, and following.

        Args:
            silent_after_seconds: wall seconds until a shard counts as silent.
            lead_seconds: wall seconds from a decision to its effect, at least.
            group_crawls_per_second: of each group that outcomes name; None: no limit.
            work_conserving: slots are for pages below λ₀ too, where none is above it.
        """
        self.fleet = Fleet(silent_after_seconds, work_conserving)
        self.timeline = SlotTimeline()
        self.groups = GroupLimits()
        self._default_limit = DefaultLimit(group_crawls_per_second)
        self.budget: Budget | None = None
        """As the operators set it; None: they did not."""
        self.epoch = 0
        """Of our leadership; 0: another leads, or nobody."""
        self.last: Multipliers | None = None
        """The newest multipliers, whoever sent them."""
        self._leader = ""
        self._least_lead_seconds = self._lead_seconds = lead_seconds
        self._published_at = -math.inf
        self._decision: Decision | None = None
        self._owed = Owed()
        self._is_news = False
        """Whether a bandwidth came that no decision tells of yet."""
        self._decided_by: Budget | None = None
        """The budget of our last decision. Another may come while that is on its way."""
        self._stepped = 0.0
        self._stepped_at = -math.inf
        """Wall, when it was seen that our clock was set."""

    def rate(self, clock: float) -> float:
        """R, crawls per second of the clock, at a time of the clock.

        Where the topic holds no bandwidth that can be read, what another coordinator went by
        stands: a bad message that displaced a good one must not stop all crawling.
        """
        return self._stretch(clock).rate

    @property
    def leads_on(self) -> bool:
        """Whether we lead, and have said so."""
        return bool(self.epoch) and self.last is not None and self.last.epoch == self.epoch

    def claim(self, epoch: int, name: str) -> Multipliers | None:
        """What a leader says before it reads what was said before it; None: nothing was.

        It changes nothing, and comes too late whenever it comes. But whatever leaders of before say
        after it counts for nobody (`SlotTimeline`): what is read then is all there is, and the
        first plan of the new epoch goes on from it, slot by slot.
        """
        if self.last is None:
            return None
        return structs.replace(
            self.last,
            version=self.timeline.last_version + 1,
            epoch=epoch,
            leader=name,
            cause="claim",
            why="another leader begins",
            append_by=0.0,
        )

    def lead(self, epoch: int, name: str) -> None:
        """Decide from now on, in an epoch that nobody has led in before."""
        self.epoch, self._leader = epoch, name
        if self.fleet.last is not None:
            self.fleet.last = replace(self.fleet.last, cause=ADOPTED)
        self._published_at = -math.inf

    def follow(self) -> None:
        """Leave the decisions to another."""
        self.epoch = 0

    def receive_bandwidth(self, message: Bandwidth) -> bool:
        """Take the budget; the last message stands.

        Returns:
            whether it is another than before.

        Raises:
            BadMessage: it cannot be used.
        """
        try:
            budget = Budget.from_message(message)
        except ValueError as error:
            raise BadMessage(str(error)) from error
        changed, is_first = budget != self.budget, self.budget is None
        self.budget = budget
        # At a start it is read after what was decided by it.
        self._is_news = self._is_news or (changed and not (is_first and self._is_told()))
        return changed

    def receive_demand(self, message: DemandCurve, heard_at: float, now: Moment) -> bool:
        """Take a shard's report.

        Args:
            message: the report.
            heard_at: wall (monotonic) time at which it was sent.
            now: the time.

        Returns:
            whether the shard has no share yet, and should get one soon.

        Raises:
            BadMessage: it cannot be used.
        """
        if message.shard >= MOST_SHARDS:
            raise BadMessage(f"shard {message.shard}: there are at most {MOST_SHARDS}")
        try:
            check_curve(message)
        except ValueError as error:
            raise BadMessage(str(error)) from error
        self._follow_clock(now)
        known = self.fleet.shards.get(message.shard)
        heard_before = known.heard_at if known is not None else heard_at
        before = self.fleet.report(message, heard_at, now.clock)
        if before is not None:
            self._observe(before, message, heard_at - heard_before, now)
        return self.fleet.is_unshared(message.shard)

    def _observe(
        self, before: DemandCurve, report: DemandCurve, seconds: float, now: Moment
    ) -> None:
        """Compare the crawls between two reports with the slots that the shard had.

        Args:
            before: the report before.
            report: the newest one.
            seconds: of the wall, between the moments at which they were heard.
            now: the time.
        """
        since, until = before.reported_at, report.reported_at
        if now.wall - seconds < self._stepped_at:
            return  # The plans of that time have moved, and the shard's clock maybe not.
        if abs((until - since) / now.speed - seconds) > CLOCKS_AGREE_SECONDS:
            return
        plan = self.timeline.at(since)
        if until <= since or plan is None or since < now.clock - KEPT_SECONDS * now.speed:
            return
        self.fleet.observe(
            report.shard,
            since,
            (until - since) / now.speed,
            Made(
                self.timeline.allotted(report.shard, since, until),
                report.achieved_crawls_per_second * (until - since),
                report.held_crawls_per_second * (until - since),
                report.answered_crawls_per_second * (until - since),
                report.unused_crawls_per_second * (until - since),
            ),
        )

    def receive_multipliers(self, message: Multipliers, now: Moment) -> bool:
        """Take a message of another coordinator, or our own as it comes back.

        Returns:
            whether it is newer than all that we know: somebody else coordinates, or did.
        """
        self._follow_clock(now)
        plan = SlotPlan.from_message(message)
        newest = self.timeline.newest
        if self.timeline.is_replaced(plan) or (newest and plan.order <= newest.order):
            return False
        # One of our own may be news as well: it was in time, though we took it to be late.
        self._note(message, now)
        if self.epoch and (message.epoch, message.leader) == (self.epoch, self._leader):
            return False
        self._is_news = self._is_news and not self._is_told()
        shares = {a.shard: a.share for a in message.allotments}
        self.fleet.adopt(message.multiplier, message.crawls_per_second, shares, now.wall)
        # Whoever leads does it with each decision.
        self.groups.forget({shares.group for shares in message.groups}, now.wall)
        return True

    @property
    def slot_value(self) -> float | None:
        """λ* of our last decision, see `solver.solve_slots`; None: not known."""
        return self._decision.slot_value if self._decision is not None else None

    def seconds_to_change(self, now: Moment) -> float:
        """Wall seconds until a decision is due: a change of the schedule, or a silent shard."""
        self._follow_clock(now)
        due = self.fleet.next_silence(now.wall) - now.wall
        if self.budget is not None:
            lead = self._lead_seconds * now.speed
            change = self.budget.next_change(first_moment(self.timeline, now.clock + lead))
            due = min(due, (change - 1.5 * lead - now.clock) / now.speed)
        return max(due, 0.0)

    def next(self, now: Moment) -> Multipliers | None:
        """The message that is due, if one is; `published` confirms it."""
        self._follow_clock(now)
        self._rebase(now)
        effective_at = self._effective_at(now)
        stretch = self._stretch(effective_at)
        planning = stretch.rate_after(PLANNING_SECONDS * now.speed)
        decision = self.fleet.decide(
            stretch, planning, self._change(effective_at, stretch), now.wall, now.speed
        )
        cause, why = decision.cause, decision.why
        before = self.timeline.newest.limits if self.timeline.newest is not None else NO_LIMITS
        limits = self._limits(before, decision.live, effective_at, now)
        if limits != before:
            said = reasons.groups(before.groups, limits.groups), reasons.default(before, limits)
            why = "; ".join(filter(None, [why, *said]))
            cause = cause if decision.material else "groups"
        elif not decision.material:
            if now.wall - self._published_at < REFRESH_SECONDS:
                return None
            cause = "refresh"
        self._decision, self._decided_by = decision, self.budget
        slots = stretch.rate * AHEAD_SECONDS * now.speed
        order = self._owed.arranged(self.timeline, decision.shares, effective_at, slots)
        return next_multipliers(
            self.timeline,
            now=now.clock,
            effective_at=effective_at,
            multiplier=decision.multiplier,
            stretch=stretch,
            shares={shard: decision.shares[shard] for shard in order},
            cause=cause,
            why=why[:MOST_WHY],
            epoch=self.epoch,
            leader=self._leader,
            limits=limits,
        )

    def _limits(
        self, before: Limits, live: frozenset[int], effective_at: float, now: Moment
    ) -> Limits:
        """Of groups, that should hold from a time on."""
        known = self.fleet.shards, live, effective_at, now.wall, now.speed
        groups = self.groups.next(before.groups, *known)
        own = {of.group for of in groups}
        return Limits(groups, self._default_limit.next(before.default, own, *known))

    def published(self, message: Multipliers, now: Moment) -> None:
        """The broker has the message: go on from it."""
        self._follow_clock(now)
        self._note(message, now)
        if self._decision is not None:
            self.fleet.decided(self._decision)
        self._is_news = self._is_news and self.budget != self._decided_by
        self._published_at = now.wall
        shorter = _LEAD_DECAY * self._lead_seconds
        self._lead_seconds = max(shorter, self._least_lead_seconds)

    def came_late(self, message: Multipliers) -> None:
        """The broker has the message, but nobody goes by it: decide again, further ahead."""
        self.leave_out(message)
        self._published_at = -math.inf
        self._lead_seconds = min(2.0 * self._lead_seconds, LONGEST_LEAD_SECONDS)

    def leave_out(self, message: Multipliers) -> None:
        """Note a message that counts for nobody."""
        self.timeline.leave_out(SlotPlan.from_message(message))

    def _note(self, message: Multipliers, now: Moment) -> None:
        self.timeline.add(SlotPlan.from_message(message))
        self.timeline.forget(now.clock - KEPT_SECONDS * now.speed)
        self.last = message

    def _effective_at(self, now: Moment) -> float:
        """When a decision of now takes effect: the schedule's next change, if that is near."""
        lead = self._lead_seconds * now.speed
        moment = first_moment(self.timeline, now.clock + lead)
        if self.budget is not None and not self._is_news:
            change = self.budget.next_change(moment)
            # Not by what is decided already: changes that follow each other closely would lead on
            # into the far future, and whatever else happens would have to wait until then.
            if change <= now.clock + 2.0 * lead:
                return change
        return moment

    def _stretch(self, clock: float) -> Stretch:
        """The budget from a time of the clock on."""
        if self.budget is not None:
            return self.budget.at(clock)
        plan = self.timeline.newest
        return plan.stretch(clock) if plan is not None else Stretch(0.0)

    def _is_told(self) -> bool:
        """Whether the newest plan goes by the budget: whoever made it knew of that."""
        plan = self.timeline.newest
        if plan is None or self.budget is None:
            return False
        return plan.stretch(plan.effective_at).is_same(self.budget.at(plan.effective_at))

    def _change(self, effective_at: float, stretch: Stretch) -> Change:
        """What the next message has to say of leadership and budget."""
        live, plan = len(self.fleet.shards), self.timeline.newest
        if plan is None or self.fleet.last is None:
            return Change("start", reasons.started(live))
        said = plan.stretch(effective_at)
        is_other = not said.is_same(stretch)
        by_schedule = self.budget is not None and bool(self.budget.schedule) and not self._is_news
        text = reasons.bandwidth(said.rate, stretch, by_schedule=by_schedule) if is_other else ""
        if self.fleet.last.cause == ADOPTED:
            taken = reasons.taken_over(self.epoch, live)
            return Change("takeover", "; ".join(filter(None, [taken, text])))
        if not is_other:
            return Change("")
        return Change("schedule" if by_schedule else "bandwidth", text)

    def _follow_clock(self, now: Moment) -> None:
        """Where our clock was set, what we remember of it moves with it, as at the schedulers."""
        moved, self._stepped = now.stepped - self._stepped, now.stepped
        if moved:
            self._stepped_at = now.wall
            self.timeline.shift(moved)
            self._owed.shift(moved)
            self.fleet.shift(moved)

    def _rebase(self, now: Moment) -> None:
        """After one whose clock ran ahead, slots go on from now, not from the far future."""
        newest = self.timeline.newest
        far_ahead = max(_FAR_AHEAD_SECONDS, 3.0 * self._lead_seconds)
        if newest and newest.effective_at > now.clock + now.speed * far_ahead:
            here = newest.moved(now.clock - newest.effective_at)
            self.timeline, self._owed = SlotTimeline([here]), Owed()
