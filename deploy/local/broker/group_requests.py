"""The requests of consumer groups: from the wire to the coordinator and back."""

import sqlite3
from typing import Any

from deploy.local.broker.admin_requests import NODE_ID
from deploy.local.broker.groups import Group, Groups, GroupState
from deploy.local.broker.members import JoinRequest, JoinResult, SyncResult
from deploy.local.broker.protocol import ErrorCode, RequestError
from deploy.local.broker.store import MetadataStore
from deploy.local.broker.topics import Topics

MAX_OFFSET_METADATA = 4096
"""Characters of the note that a client may store with an offset (Kafka's limit)."""
_TRANSACTION = 1


def find_coordinator(request: Any, version: int, address: tuple[str, int]) -> tuple[Any, ...]:
    """Answer that this broker coordinates every group, and no transaction."""
    if version == 0:
        return ErrorCode.NONE, NODE_ID, *address
    if request.coordinator_type == _TRANSACTION:
        reason = "the local broker has no transactions; use Apache Kafka for them"
        return 0, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason, -1, "", -1
    return 0, ErrorCode.NONE, None, NODE_ID, *address


async def join_group(
    request: Any, version: int, groups: Groups, client: tuple[str, str]
) -> tuple[Any, ...]:
    """Join a group; `client` is the client's id and address."""
    rebalance_timeout = request.rebalance_timeout if version >= 1 else request.session_timeout
    ask = JoinRequest(
        member_id=request.member_id or "",
        instance_id=request.group_instance_id if version >= 5 else None,
        client_id=client[0],
        client_host=client[1],
        session_timeout=request.session_timeout / 1000,
        rebalance_timeout=rebalance_timeout / 1000,
        protocol_type=request.protocol_type or "",
        protocols={name: bytes(data or b"") for name, data in request.group_protocols or ()},
        takes_member_id=version >= 4,
    )
    try:
        result = await groups.get_or_create(request.group).join(ask)
    except RequestError as error:
        result = JoinResult(error.code, ask.member_id)
    members = [row if version >= 5 else (row[0], row[2]) for row in result.members]
    answer = (
        result.error,
        result.generation,
        result.protocol,
        result.leader,
        result.member_id,
        members,
    )
    return (0, *answer) if version >= 2 else answer


async def sync_group(request: Any, version: int, groups: Groups) -> tuple[Any, ...]:
    """Take or hand out the assignments of a generation."""
    try:
        result = await _group(groups, request.group).sync(
            request.member_id,
            request.group_instance_id if version >= 3 else None,
            request.generation_id,
            {member: bytes(data or b"") for member, data in request.group_assignment or ()},
        )
    except RequestError as error:
        result = SyncResult(error.code)
    answer = (result.error, result.assignment)
    return (0, *answer) if version >= 1 else answer


def heartbeat(request: Any, version: int, groups: Groups) -> tuple[Any, ...]:
    """Keep a member alive."""
    error = ErrorCode.NONE
    try:
        _group(groups, request.group).heartbeat(request.member_id, request.generation_id)
    except RequestError as failure:
        error = failure.code
    return (0, error) if version >= 1 else (error,)


def leave_group(request: Any, version: int, groups: Groups) -> tuple[Any, ...]:
    """Let a member go."""
    error = ErrorCode.NONE
    try:
        _group(groups, request.group).leave(request.member_id)
    except RequestError as failure:
        error = failure.code
    return (0, error) if version >= 1 else (error,)


def commit_offsets(
    request: Any, version: int, groups: Groups, topics: Topics, store: MetadataStore
) -> tuple[Any, ...]:
    """Store the offsets that a group has reached."""
    failure = ErrorCode.NONE
    try:
        group = groups.get_or_create(request.consumer_group)
        group.check_commit(request.consumer_id, request.consumer_group_generation_id)
    except RequestError as error:
        failure = error.code
    answers, rows = [], []
    for name, partitions in request.topics or ():
        results = []
        for number, offset, note in partitions or ():
            error_code = failure
            if error_code is ErrorCode.NONE and topics.partition(name, number) is None:
                error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif error_code is ErrorCode.NONE and len(note or "") > MAX_OFFSET_METADATA:
                error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            elif error_code is ErrorCode.NONE:
                rows.append((name, number, offset, note or ""))
            results.append((number, error_code))
        answers.append((name, results))
    try:
        if rows:
            store.commit_offsets(request.consumer_group, rows)
    except sqlite3.Error:
        unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        answers = [(name, [(n, unavailable) for n, _ in results]) for name, results in answers]
    return (0, answers) if version >= 3 else (answers,)


def fetch_offsets(request: Any, version: int, store: MetadataStore) -> tuple[Any, ...]:
    """Answer the offsets that a group has reached."""
    committed = store.committed(request.consumer_group)
    if request.topics is None:
        asked: dict[str, list[int]] = {}
        for name, number in committed:
            asked.setdefault(name, []).append(number)
    else:
        asked = {name: numbers or [] for name, numbers in request.topics}
    answers = [
        (
            name,
            [(n, *committed.get((name, n), (-1, "")), ErrorCode.NONE) for n in numbers],
        )
        for name, numbers in asked.items()
    ]
    if version < 2:
        return (answers,)
    return (answers, ErrorCode.NONE) if version == 2 else (0, answers, ErrorCode.NONE)


def list_groups(version: int, groups: Groups) -> tuple[Any, ...]:
    """Answer the names of all groups."""
    answers = [(group.group_id, group.protocol_type) for group in groups.all()]
    return (ErrorCode.NONE, answers) if version < 1 else (0, ErrorCode.NONE, answers)


def describe_groups(request: Any, version: int, groups: Groups) -> tuple[Any, ...]:
    """Answer the states and members of groups."""
    answers = [_described(group_id, groups.get(group_id)) for group_id in request.groups or ()]
    return (answers,) if version < 1 else (0, answers)


def _described(group_id: str, group: Group | None) -> tuple[Any, ...]:
    if group is None:
        return ErrorCode.NONE, group_id, GroupState.DEAD, "", "", []
    members = [
        (
            record.member_id,
            record.client_id,
            record.client_host,
            record.protocols.get(group.protocol, b""),
            record.assignment,
        )
        for record in (member.record for member in group.members.values())
    ]
    kind, protocol = group.protocol_type, group.protocol
    return ErrorCode.NONE, group_id, group.state, kind, protocol, members


def delete_groups(request: Any, groups: Groups) -> tuple[Any, ...]:
    """Delete groups without members."""
    answers = []
    for group_id in request.groups_names or ():
        error = ErrorCode.NONE
        try:
            groups.delete(group_id)
        except RequestError as failure:
            error = failure.code
        except sqlite3.Error:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        answers.append((group_id, error))
    return 0, answers


def _group(groups: Groups, group_id: str) -> Group:
    group = groups.get(group_id)
    if group is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"no group {group_id}")
    return group
