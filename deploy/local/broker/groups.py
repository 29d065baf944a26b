"""The coordinator of consumer groups: who is in, who leads, who reads what.

The states and answers are those of Kafka's classic group protocol (GroupCoordinator of Kafka 3),
with static membership (KIP-345).
"""

import asyncio
import sqlite3
import uuid
from collections import Counter
from enum import StrEnum

import msgspec
import structlog

from deploy.local.broker.members import (
    GroupRecord,
    JoinRequest,
    JoinResult,
    Member,
    MemberRecord,
    SyncResult,
)
from deploy.local.broker.protocol import ErrorCode, RequestError
from deploy.local.broker.store import MetadataStore

SESSION_TIMEOUT_SECONDS = (0.1, 1800.0)
"""Shortest and longest session timeout that a member may ask for."""
PROMISE_SECONDS = 300.0
"""How long a member id that was given out may stay unused."""
TICK_SECONDS = 0.05
"""Time between two looks for silent members."""

log = structlog.get_logger(__name__)


class GroupState(StrEnum):
    """Kafka's names of a group's states."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Group:
    """One consumer group. Times are those of the event loop's clock, in seconds."""

    def __init__(self, group_id: str, store: MetadataStore, record: GroupRecord) -> None:
        self.group_id = group_id
        self.generation = record.generation
        self.protocol_type = record.protocol_type
        self.protocol = record.protocol
        self.leader = record.leader
        self.state = GroupState.STABLE if record.members else GroupState.EMPTY
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._deadline = 0.0
        self._promised: dict[str, float] = {}
        now = self._loop.time()
        self.members = {
            member.member_id: Member(member, now + member.session_timeout)
            for member in record.members
        }
        self._static = {
            member.instance_id: member.member_id
            for member in record.members
            if member.instance_id is not None
        }

    async def join(self, ask: JoinRequest) -> JoinResult:
        """Let a client in; answers when the rebalance that this may start is over.

        Raises RequestError if the client cannot be let in.
        """
        self._check_join(ask)
        old_leader = self.leader
        if ask.instance_id is None and not ask.member_id and ask.takes_member_id:
            promised = _new_member_id(ask)
            self._promised[promised] = self._loop.time() + PROMISE_SECONDS
            return JoinResult(ErrorCode.MEMBER_ID_REQUIRED, promised)
        known_before = set(self.members)
        replaces = ask.instance_id in self._static and not ask.member_id
        member = self._replace_static(ask) if replaces else self._find_or_add(ask)
        changed = member.record.protocols != ask.protocols
        member.record.protocols = ask.protocols
        member.record.session_timeout = ask.session_timeout
        member.record.rebalance_timeout = ask.rebalance_timeout
        self._touch(member)
        member_id = member.record.member_id
        fresh = member_id not in known_before
        if self.state is GroupState.STABLE:
            # A restart of the same instance: nobody else needs to know. As in Kafka, what it says
            # about itself does not matter: clients list the same topics in another order.
            if replaces and self._elect_protocol() == self.protocol:
                self._save()
                return self._joined(member)._replace(leader=old_leader, members=())
            if not (changed or fresh) and member_id != self.leader:
                return self._joined(member)
        if self.state is GroupState.COMPLETING and not (changed or fresh):
            return self._joined(member)
        member.answer_join(JoinResult(ErrorCode.REBALANCE_IN_PROGRESS, member_id))
        member.joining = self._loop.create_future()
        waiting = member.joining
        self._prepare_rebalance()
        return await waiting

    async def sync(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: dict[str, bytes],
    ) -> SyncResult:
        """Take the leader's assignments, or wait for them; raises RequestError."""
        member = self._member(member_id, instance_id, generation)
        self._touch(member)
        if self.state is GroupState.PREPARING:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing")
        if self.state is GroupState.STABLE:
            return SyncResult(ErrorCode.NONE, member.record.assignment)
        if member_id != self.leader:
            member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
            member.syncing = self._loop.create_future()
            return await member.syncing
        self.state = GroupState.STABLE
        for each in self.members.values():
            each.record.assignment = assignments.get(each.record.member_id, b"")
            self._touch(each)
            each.answer_sync(SyncResult(ErrorCode.NONE, each.record.assignment))
        self._save()
        return SyncResult(ErrorCode.NONE, member.record.assignment)

    def heartbeat(self, member_id: str, generation: int) -> None:
        """Note that a member lives; raises RequestError if it has to rejoin."""
        member = self._member(member_id, None, generation)
        self._touch(member)
        if self.state is GroupState.PREPARING:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing")

    def leave(self, member_id: str) -> None:
        """Let a member go; raises RequestError if it is none."""
        if self._promised.pop(member_id, None) is not None:
            return
        if member_id not in self.members:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member")
        self._remove(member_id)
        self._rebalance_after_removal()

    def check_commit(self, member_id: str, generation: int) -> None:
        """Raise RequestError unless this client may commit offsets now."""
        if generation < 0 and not self.members:
            return
        member = self._member(member_id, None, generation)
        if self.state is GroupState.COMPLETING:
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS, "the group is rebalancing")
        self._touch(member)

    def tick(self, now: float) -> None:
        """Drop members that were silent for too long, and end rebalances that took too long."""
        self._promised = {m: until for m, until in self._promised.items() if until > now}
        silent = [
            member_id
            for member_id, member in self.members.items()
            if member.joining is None and member.syncing is None and member.expires_at < now
        ]
        overdue = self.state is GroupState.PREPARING and now >= self._deadline
        if overdue:
            silent += [
                member_id
                for member_id, member in self.members.items()
                if member.joining is None
                and member.record.instance_id is None
                and member_id not in silent
            ]
        for member_id in silent:
            log.info("member left silently", group=self.group_id, member=member_id)
            self._remove(member_id)
        if silent:
            self._rebalance_after_removal()
        if self.state is GroupState.PREPARING and overdue:
            if any(member.joining for member in self.members.values()):
                self._complete_join()
            else:
                self._deadline = now + self._longest_rebalance()

    def _check_join(self, ask: JoinRequest) -> None:
        shortest, longest = SESSION_TIMEOUT_SECONDS
        if not shortest <= ask.session_timeout <= longest:
            raise RequestError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session timeout of {ask.session_timeout} s; allowed are {shortest} to {longest}",
            )
        others = [m.record for i, m in self.members.items() if i != ask.member_id]
        mismatch = bool(others) and (
            ask.protocol_type != self.protocol_type
            or not set(ask.protocols).intersection(*(other.protocols for other in others))
        )
        if mismatch or not ask.protocols:
            raise RequestError(
                ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
                f"no assignment strategy in common with the members of {self.group_id}",
            )

    def _find_or_add(self, ask: JoinRequest) -> Member:
        member_id = ask.member_id or _new_member_id(ask)
        if ask.instance_id is not None and ask.member_id:
            current = self._static.get(ask.instance_id)
            if current is not None and current != ask.member_id:
                raise RequestError(ErrorCode.FENCED_INSTANCE_ID, f"{ask.instance_id} was replaced")
        if member_id in self.members:
            return self.members[member_id]
        promised = self._promised.pop(member_id, None) is not None
        if ask.member_id and not promised:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member")
        if not self.members:
            self.protocol_type = ask.protocol_type
        record = MemberRecord(
            member_id=member_id,
            instance_id=ask.instance_id,
            client_id=ask.client_id,
            client_host=ask.client_host,
            session_timeout=ask.session_timeout,
            rebalance_timeout=ask.rebalance_timeout,
            protocols=ask.protocols,
        )
        self.members[member_id] = Member(record, 0.0)
        if ask.instance_id is not None:
            self._static[ask.instance_id] = member_id
        return self.members[member_id]

    def _replace_static(self, ask: JoinRequest) -> Member:
        """Give a restarted instance a new member id and all that the old one had."""
        instance_id = ask.instance_id or ""
        old = self.members.pop(self._static[instance_id])
        was_leader = self.leader == old.record.member_id
        old.dismiss(ErrorCode.FENCED_INSTANCE_ID)
        record = msgspec.structs.replace(old.record, member_id=_new_member_id(ask))
        self.members[record.member_id] = Member(record, 0.0)
        self._static[instance_id] = record.member_id
        if was_leader:
            self.leader = record.member_id
        if self.state is GroupState.COMPLETING:  # the leader is assigning to the old id
            self._prepare_rebalance()
        return self.members[record.member_id]

    def _member(self, member_id: str, instance_id: str | None, generation: int) -> Member:
        if instance_id is not None and self._static.get(instance_id, member_id) != member_id:
            raise RequestError(ErrorCode.FENCED_INSTANCE_ID, f"{instance_id} was replaced")
        if member_id not in self.members:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"{member_id} is no member")
        if generation != self.generation:
            raise RequestError(
                ErrorCode.ILLEGAL_GENERATION,
                f"generation {generation}, while the group is at {self.generation}",
            )
        return self.members[member_id]

    def _touch(self, member: Member) -> None:
        member.expires_at = self._loop.time() + member.record.session_timeout

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if self._static.get(member.record.instance_id or "") == member_id:
            del self._static[member.record.instance_id or ""]
        member.dismiss(ErrorCode.UNKNOWN_MEMBER_ID)

    def _rebalance_after_removal(self) -> None:
        if self.members:
            self._prepare_rebalance()
        else:
            self._complete_join()

    def _longest_rebalance(self) -> float:
        return max(member.record.rebalance_timeout for member in self.members.values())

    def _prepare_rebalance(self) -> None:
        if self.state is not GroupState.PREPARING:
            self.state = GroupState.PREPARING
            self._deadline = self._loop.time() + self._longest_rebalance()
            for member in self.members.values():
                member.answer_sync(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        if all(member.joining for member in self.members.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        self.generation += 1
        if not self.members:
            self.state, self.protocol, self.leader = GroupState.EMPTY, "", ""
            self._save()
            return
        self.state = GroupState.COMPLETING
        if self.leader not in self.members or self.members[self.leader].joining is None:
            self.leader = next(i for i, member in self.members.items() if member.joining)
        self.protocol = self._elect_protocol()
        for member in self.members.values():
            self._touch(member)
            member.answer_join(self._joined(member))
        log.info(
            "group rebalanced",
            group=self.group_id,
            generation=self.generation,
            members=len(self.members),
        )

    def _elect_protocol(self) -> str:
        offers = [list(member.record.protocols) for member in self.members.values()]
        common = set(offers[0]).intersection(*offers[1:])
        votes = Counter(next(name for name in offer if name in common) for offer in offers)
        return votes.most_common(1)[0][0]

    def _joined(self, member: Member) -> JoinResult:
        member_id = member.record.member_id
        roster = (
            (r.member_id, r.instance_id, r.protocols.get(self.protocol, b""))
            for r in self._records()
        )
        return JoinResult(
            ErrorCode.NONE,
            member_id,
            self.generation,
            self.protocol,
            self.leader,
            tuple(roster) if member_id == self.leader else (),
        )

    def _records(self) -> list[MemberRecord]:
        return [member.record for member in self.members.values()]

    def _save(self) -> None:
        record = GroupRecord(
            self.generation, self.protocol_type, self.protocol, self.leader, self._records()
        )
        try:
            self._store.put_group(self.group_id, msgspec.msgpack.encode(record))
        except sqlite3.Error as error:  # the group goes on; only a restart would rebalance it
            log.critical("group cannot be stored", group=self.group_id, error=str(error))


class Groups:
    """All consumer groups of the broker."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._groups: dict[str, Group] = {}
        for group_id, state in store.groups().items():
            record = msgspec.msgpack.decode(state, type=GroupRecord) if state else GroupRecord()
            self._groups[group_id] = Group(group_id, store, record)

    def get(self, group_id: str) -> Group | None:
        """Return a group, or None."""
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        """Return a group, made if need be; raises RequestError for an empty id."""
        if not group_id:
            raise RequestError(ErrorCode.INVALID_GROUP_ID, "a group needs an id")
        if group_id not in self._groups:
            self._groups[group_id] = Group(group_id, self._store, GroupRecord())
        return self._groups[group_id]

    def all(self) -> list[Group]:
        """Return all groups."""
        return list(self._groups.values())

    def delete(self, group_id: str) -> None:
        """Delete a group without members; raises RequestError."""
        group = self._groups.get(group_id)
        if group is None:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"no group {group_id}")
        if group.members:
            raise RequestError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} has members")
        self._store.delete_group(group_id)
        del self._groups[group_id]

    async def keep_ticking(self) -> None:
        """Watch for silent members, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for group in self.all():
                group.tick(loop.time())


def _new_member_id(ask: JoinRequest) -> str:
    return f"{ask.instance_id or ask.client_id}-{uuid.uuid4()}"
