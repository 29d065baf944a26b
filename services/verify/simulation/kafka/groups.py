"""Consumer groups: members and generations, as far as static members see them.

A member that leaves without a word keeps its partitions until its session times out. One that
comes back under its instance's name takes its own place; whoever held it is fenced off.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import OUTSIDE
from shared.runtime.striped import stripes

FIRST_WAIT_SECONDS: Final = 0.3
"""An empty group waits so long for more members before it begins."""

Answer = Literal["ok", "rebalancing", "unknown", "fenced", "old"]


@dataclass(frozen=True, slots=True)
class Joined:
    """What a member hears when its group has decided."""

    generation: int
    member_id: str
    partitions: tuple[int, ...]
    shared: int
    """How many partitions the group has shared."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Who asks for a part."""

    instance: str
    member_id: str
    """Empty: of a new life."""
    session_seconds: float
    count: Callable[[], int]
    """How many partitions it knows of."""
    is_unasked: bool = False
    """Whether it joins anew of its own accord."""


@dataclass(slots=True)
class Member:
    """A place in a group."""

    instance: str
    member_id: str
    session_seconds: float
    heard_at: float
    count: Callable[[], int]
    """How many partitions of each topic it knows of."""
    waiting: "asyncio.Future[Joined | None] | None" = None
    """Its join, while the group decides."""
    partitions: tuple[int, ...] = ()


@dataclass(slots=True)
class Group:
    """One group; partition p of each topic goes to the same member."""

    name: str
    partitions: int = 0
    """How many were shared, as the member knew that leads."""
    leader: str = ""
    """The instance that shares for all."""
    members: dict[str, Member] = field(default_factory=dict)
    """By instance."""
    generation: int = 0
    is_deciding: bool = False
    round: int = 0
    """Counts decisions begun."""
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    commits: list[tuple[float, dict[tuple[str, int], int]]] = field(default_factory=list)
    """All that there were, in their order, with their virtual seconds."""

    def commit(self, offsets: dict[tuple[str, int], int], now: float) -> None:
        """Take for done what is before these offsets of topics' partitions."""
        self.committed |= offsets
        self.commits.append((now, offsets))


class Groups:
    """All groups of a broker."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self._groups: dict[str, Group] = {}
        self._ids = 0
        self.changed: Callable[[str, str], None] = lambda _group, _text: None
        """Told what becomes of groups."""

    def get(self, name: str) -> Group:
        """A group, which begins empty."""
        if name not in self._groups:
            self._groups[name] = Group(name)
        return self._groups[name]

    def all(self) -> list[Group]:
        """Groups that there are."""
        return list(self._groups.values())

    def join(
        self, group: Group, asking: Asking
    ) -> "Joined | Answer | asyncio.Future[Joined | None]":
        """Ask for a part; answered at once where nothing changes, else when the group has decided.

        A member that is replaced while it waits hears None.
        """
        instance, member_id = asking.instance, asking.member_id
        now, known = self._loop.now, group.members.get(instance)
        if known is not None and member_id and known.member_id != member_id:
            return "fenced"
        if known is None and member_id:
            return "unknown"
        is_new = known is None
        if known is None or not member_id:
            self._ids += 1
            if known is not None and known.waiting is not None and not known.waiting.done():
                known.waiting.set_result(None)
            partitions = known.partitions if known is not None else ()
            name = f"{instance}-{self._ids}"
            known = Member(instance, name, asking.session_seconds, now, asking.count)
            known.partitions = partitions
            group.members[instance] = known
            self._watch(group, known)
            if not is_new and not group.is_deciding:
                # A static member that is back: nothing changes.
                return _as_it_is(group, known)
        known.heard_at = now
        if asking.is_unasked and not group.is_deciding and instance != group.leader:
            return _as_it_is(group, known)
        known.waiting = self._loop.create_future()
        if not group.is_deciding:
            self.rebalance(group, f"{instance} joins")
        self._complete_if_all_are_there(group)
        return known.waiting

    def heartbeat(self, group: Group, instance: str, member_id: str, generation: int) -> Answer:
        """Take a sign of life."""
        known = group.members.get(instance)
        if known is None:
            return "unknown"
        if known.member_id != member_id:
            return "fenced"
        known.heard_at = self._loop.now
        if group.is_deciding:
            return "rebalancing"
        return "ok" if generation == group.generation else "old"

    def knows(self, group: Group, instance: str, member_id: str, generation: int) -> bool:
        """Whether a member is one of the group at rest, in its generation."""
        known = group.members.get(instance)
        if known is None or known.member_id != member_id or group.is_deciding:
            return False
        known.heard_at = self._loop.now
        return generation == group.generation

    def leave(self, group: Group, instance: str, why: str) -> None:
        """Take a member out, and share its partitions anew."""
        gone = group.members.pop(instance, None)
        if gone is None:
            return
        if gone.waiting is not None and not gone.waiting.done():
            gone.waiting.set_result(None)
        self.rebalance(group, f"{instance} {why}")

    def rebalance(self, group: Group, why: str) -> None:
        """Let all members join anew."""
        self.changed(group.name, f"shares anew: {why}")
        group.round += 1
        group.is_deciding = True
        longest = max((m.session_seconds for m in group.members.values()), default=1.0)
        number = group.round
        self._later(longest, lambda: self._complete(group, number))
        self._complete_if_all_are_there(group)

    def _complete_if_all_are_there(self, group: Group) -> None:
        if not group.is_deciding or not group.members:
            return
        if all(m.waiting is not None for m in group.members.values()):
            number = group.round
            wait = FIRST_WAIT_SECONDS if group.generation == 0 else 0.0
            if wait:
                self._later(wait, lambda: self._complete(group, number))
            else:
                self._complete(group, number)

    def _complete(self, group: Group, number: int) -> None:
        """Share the partitions among all members; static ones that do not answer keep a part until
        their session times out."""
        if number != group.round or not group.is_deciding or not group.members:
            return
        group.is_deciding = False
        group.generation += 1
        members = [group.members[name] for name in sorted(group.members)]
        there = [m.instance for m in members if m.waiting is not None] or sorted(group.members)
        if group.leader not in there:
            group.leader = there[0]
        group.partitions = group.members[group.leader].count()
        for name, stripe in stripes(group.members, group.partitions).items():
            group.members[name].partitions = tuple(stripe)
        shared = {m.instance: list(m.partitions) for m in members}
        self.changed(group.name, f"generation {group.generation}: {shared}")
        for member in members:
            waiting, member.waiting = member.waiting, None
            if waiting is not None and not waiting.done():
                member.heard_at = self._loop.now
                waiting.set_result(_as_it_is(group, member))

    def restart(self) -> None:
        """The broker is back: sessions begin anew."""
        for group in self._groups.values():
            for member in group.members.values():
                member.heard_at = self._loop.now

    def _watch(self, group: Group, member: Member) -> None:
        """Take a member out when its session times out."""

        def look() -> None:
            if group.members.get(member.instance) is not member:
                return
            left = member.heard_at + member.session_seconds - self._loop.now
            if member.waiting is not None:
                left = member.session_seconds  # who waits for the group is there
            if left <= 0:
                self.leave(group, member.instance, "was not heard")
            else:
                self._later(left + 0.001, look)

        self._later(member.session_seconds, look)

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self._loop.call_later(seconds, call, context=OUTSIDE.context())


def _as_it_is(group: Group, member: Member) -> Joined:
    return Joined(group.generation, member.member_id, member.partitions, group.partitions)
