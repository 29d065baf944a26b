"""Requests and responses: which are served, in which versions, and how they look on the wire.

The schemas are aiokafka's own. Three versions that aiokafka skips have the layout of the version
before them and are taken from there. Fetch is coded by hand (see fetch_codec): its requests name
hundreds of partitions, and the schemas would cost milliseconds each time.
"""

import struct
from enum import IntEnum
from io import BytesIO
from typing import Any, NamedTuple

from aiokafka.protocol import (
    admin,
    commit,
    coordination,
    group,
    metadata,
    offset,
    produce,
    transaction,
)

MAX_FRAME_BYTES = 100 * 1024 * 1024
"""Kafka's socket.request.max.bytes: a longer request closes the connection."""

FETCH = 1
JOIN_GROUP = 11
API_VERSIONS = 18

_HEADER = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_ARRAY_ERRORS = (ValueError, struct.error, TypeError, IndexError, MemoryError, OverflowError)


class ErrorCode(IntEnum):
    """Kafka's error codes, as far as this broker answers with them."""

    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    INVALID_REQUEST = 42
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    FENCED_INSTANCE_ID = 82
    INVALID_RECORD = 87


class RequestError(Exception):
    """A request, or one part of it, is answered with an error code."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class MalformedRequestError(ValueError):
    """The bytes are no request; the connection cannot be used any further."""


class UnsupportedRequestError(Exception):
    """A kind or version of request that this broker does not serve."""


class RequestHeader(NamedTuple):
    """What stands before every request's body; `body_at` is where the body starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str
    body_at: int


def _served() -> dict[tuple[int, int], Any]:
    classes = [
        *(getattr(produce, f"ProduceRequest_v{v}") for v in range(3, 8)),
        *(getattr(offset, f"OffsetRequest_v{v}") for v in range(1, 4)),
        *(getattr(metadata, f"MetadataRequest_v{v}") for v in range(6)),
        *(getattr(commit, f"OffsetCommitRequest_v{v}") for v in (2, 3)),
        *(getattr(commit, f"OffsetFetchRequest_v{v}") for v in (1, 2, 3)),
        *(getattr(coordination, f"FindCoordinatorRequest_v{v}") for v in (0, 1)),
        *(getattr(group, f"JoinGroupRequest_v{v}") for v in (0, 1, 2, 5)),
        *(getattr(group, f"HeartbeatRequest_v{v}") for v in (0, 1)),
        *(getattr(group, f"LeaveGroupRequest_v{v}") for v in (0, 1)),
        *(getattr(group, f"SyncGroupRequest_v{v}") for v in (0, 1, 3)),
        *(getattr(admin, f"DescribeGroupsRequest_v{v}") for v in (0, 1, 2)),
        *(getattr(admin, f"ListGroupsRequest_v{v}") for v in (0, 1)),
        *(getattr(admin, f"ApiVersionRequest_v{v}") for v in (0, 1, 2)),
        *(getattr(admin, f"CreateTopicsRequest_v{v}") for v in range(4)),
        *(getattr(admin, f"DeleteTopicsRequest_v{v}") for v in range(4)),
        *(getattr(admin, f"DescribeConfigsRequest_v{v}") for v in (0, 1, 2)),
        *(getattr(admin, f"AlterConfigsRequest_v{v}") for v in (0, 1)),
        *(getattr(admin, f"CreatePartitionsRequest_v{v}") for v in (0, 1)),
        *(getattr(admin, f"DeleteGroupsRequest_v{v}") for v in (0, 1)),
        transaction.InitProducerIdRequest_v0,
    ]
    table = {(c.API_KEY, c.API_VERSION): c for c in classes}
    join, sync, producer_id = group.JoinGroupRequest_v2, group.SyncGroupRequest_v1, 22
    table |= {(11, 3): join, (11, 4): join, (14, 2): sync}
    table[producer_id, 1] = transaction.InitProducerIdRequest_v0
    return table


_REQUESTS = _served()


def _version_ranges() -> list[tuple[int, int, int]]:
    versions: dict[int, list[int]] = {FETCH: [4, 11]}
    for api_key, version in _REQUESTS:
        versions.setdefault(api_key, []).append(version)
    return [(api_key, min(found), max(found)) for api_key, found in sorted(versions.items())]


VERSION_RANGES = _version_ranges()
"""(api key, lowest version, highest version) of every served request."""
_RANGE_OF = {api_key: (low, high) for api_key, low, high in VERSION_RANGES}


def read_request_header(frame: bytes) -> RequestHeader:
    """Read the header of a request frame; raises MalformedRequestError."""
    try:
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
        body_at = _HEADER.size + max(length, 0)
        client_id = frame[_HEADER.size : body_at].decode()
    except (struct.error, UnicodeDecodeError) as error:
        raise MalformedRequestError(f"no request header: {error}") from error
    if body_at > len(frame):
        raise MalformedRequestError("request ends inside its header")
    return RequestHeader(api_key, api_version, correlation_id, client_id, body_at)


def check_served(header: RequestHeader) -> None:
    """Raise UnsupportedRequestError unless this kind and version of request is served."""
    low, high = _RANGE_OF.get(header.api_key, (0, -1))
    if not low <= header.api_version <= high:
        raise UnsupportedRequestError(
            f"request {header.api_key} version {header.api_version} is not served by the local "
            f"broker; use Apache Kafka for it (KAFKA_BOOTSTRAP_SERVERS)"
        )


def decode_request(header: RequestHeader, frame: bytes) -> Any:
    """Decode a request's body by aiokafka's schema; raises MalformedRequestError."""
    body = BytesIO(frame)
    body.seek(header.body_at)
    try:
        return _REQUESTS[header.api_key, header.api_version].decode(body)
    except _ARRAY_ERRORS as error:
        raise MalformedRequestError(
            f"request {header.api_key} version {header.api_version} cannot be decoded: {error}"
        ) from error


def encode_response(header: RequestHeader, fields: tuple[Any, ...]) -> bytes:
    """Encode a response's fields, in the order of aiokafka's schema for the request's version."""
    response: bytes = _REQUESTS[header.api_key, header.api_version].RESPONSE_TYPE(*fields).encode()
    return response


def encode_api_versions(version: int) -> bytes:
    """Answer ApiVersions; a version beyond ours is answered in version 0, as the protocol says."""
    known = (API_VERSIONS, version) in _REQUESTS
    error = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION
    request = _REQUESTS[API_VERSIONS, version if known else 0]
    throttle = (0,) if known and version >= 1 else ()
    response: bytes = request.RESPONSE_TYPE(error, VERSION_RANGES, *throttle).encode()
    return response


def frame_prefix(correlation_id: int, body_bytes: int) -> bytes:
    """Return what stands before a response's body: its length and correlation id."""
    return _LENGTH.pack(body_bytes + _LENGTH.size) + _LENGTH.pack(correlation_id)
