"""The members of a consumer group, as they are in memory and as they are stored."""

import asyncio
from typing import NamedTuple

import msgspec

from deploy.local.broker.protocol import ErrorCode


class JoinRequest(NamedTuple):
    """What a client says when it joins; timeouts in seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: dict[str, bytes]
    takes_member_id: bool
    """Whether the client can be told its id first and has to join again with it (KIP-394)."""


class JoinResult(NamedTuple):
    """The answer to a join; `members` (id, instance id, metadata) is for the leader only."""

    error: ErrorCode
    member_id: str
    generation: int = -1
    protocol: str = ""
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()


class SyncResult(NamedTuple):
    """The answer to a sync: the member's assignment, in the client's own encoding."""

    error: ErrorCode
    assignment: bytes = b""


class MemberRecord(msgspec.Struct):
    """What is known of a member, and stored."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: dict[str, bytes]
    assignment: bytes = b""


class GroupRecord(msgspec.Struct):
    """A group between two rebalances, as it is stored."""

    generation: int = 0
    protocol_type: str = ""
    protocol: str = ""
    leader: str = ""
    members: list[MemberRecord] = []


class Member:
    """A member and the requests of it that wait for an answer."""

    def __init__(self, record: MemberRecord, expires_at: float) -> None:
        self.record = record
        self.expires_at = expires_at
        self.joining: asyncio.Future[JoinResult] | None = None
        self.syncing: asyncio.Future[SyncResult] | None = None

    def answer_join(self, result: JoinResult) -> None:
        """Answer the join that waits, if one does."""
        waiting, self.joining = self.joining, None
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def answer_sync(self, result: SyncResult) -> None:
        """Answer the sync that waits, if one does."""
        waiting, self.syncing = self.syncing, None
        if waiting is not None and not waiting.done():
            waiting.set_result(result)

    def dismiss(self, error: ErrorCode) -> None:
        """Answer whatever waits with an error."""
        self.answer_join(JoinResult(error, self.record.member_id))
        self.answer_sync(SyncResult(error))
