"""The broker: connections in, answers out."""

import asyncio
import contextlib
import fcntl
import os
import socket
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import structlog

from deploy.local.broker import admin_requests, data_requests, group_requests, protocol
from deploy.local.broker.data_requests import FetchState
from deploy.local.broker.groups import Groups
from deploy.local.broker.protocol import MalformedRequestError, RequestHeader
from deploy.local.broker.store import MetadataStore
from deploy.local.broker.topics import Topics

_LENGTH = struct.Struct(">i")
_RECEIVE_BUFFER = 8 * 1024 * 1024

log = structlog.get_logger(__name__)


class DataDirectoryInUseError(RuntimeError):
    """Another broker is running on the same data directory; stop it first."""


class Broker:
    """A Kafka-protocol broker for one machine, with all its state under `data_dir`.

    It is a convenience for development: one node, no replication, no transactions, no access
    control, loopback only unless told otherwise.
    """

    def __init__(
        self,
        data_dir: Path,
        host: str = "127.0.0.1",
        port: int = 0,
        advertised_port: int | None = None,
    ) -> None:
        self._data_dir = data_dir
        self._address = (host, port)
        self._advertised_port = advertised_port
        self._tasks: list[asyncio.Task[None]] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._handlers: dict[int, Callable[[Any, int], Any]] = {}

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, `host:port`."""
        host, port = self._advertised
        return f"{host}:{port}"

    @property
    def _advertised(self) -> tuple[str, int]:
        """Where clients are told to go: to a proxy, if there is one in front."""
        host, port = self._address
        return host, self._advertised_port or port

    async def start(self) -> None:
        """Open the data and listen; raises DataDirectoryInUseError, OSError."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(self._data_dir / "lock")
        self._store = MetadataStore(self._data_dir / "metadata.db")
        self._topics = Topics(self._data_dir / "topics", self._store)
        self._groups = Groups(self._store)
        self._cluster_id = self._store.cluster_id()
        self._handlers = self._route()
        host, port = self._address
        self._server = await asyncio.start_server(self._connect, host, port, limit=_RECEIVE_BUFFER)
        self._address = (host, self._server.sockets[0].getsockname()[1])
        self._tasks = [
            asyncio.create_task(self._topics.keep_synced()),
            asyncio.create_task(self._topics.keep_small()),
            asyncio.create_task(self._groups.keep_ticking()),
        ]
        log.info(
            "broker is up",
            bootstrap_servers=self.bootstrap_servers,
            data_dir=str(self._data_dir),
            topics=len(list(self._topics)),
        )

    async def stop(self) -> None:
        """Close all connections, flush and close the data."""
        self._server.close()
        for task in [*self._tasks, *self._connections]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._connections, return_exceptions=True)
        await self._server.wait_closed()
        self._topics.close()
        self._store.close()
        os.close(self._lock)
        log.info("broker is down")

    def _route(self) -> dict[int, Callable[[Any, int], Any]]:
        """Return what answers each kind of request, given the request and its version."""
        topics, groups, store = self._topics, self._groups, self._store
        return {
            0: lambda r, v: data_requests.produce(r, v, topics),
            2: lambda r, v: data_requests.list_offsets(r, v, topics),
            3: lambda r, v: admin_requests.metadata(
                r, v, topics, self._cluster_id, self._advertised
            ),
            8: lambda r, v: group_requests.commit_offsets(r, v, groups, topics, store),
            9: lambda r, v: group_requests.fetch_offsets(r, v, store),
            10: lambda r, v: group_requests.find_coordinator(r, v, self._advertised),
            12: lambda r, v: group_requests.heartbeat(r, v, groups),
            13: lambda r, v: group_requests.leave_group(r, v, groups),
            14: lambda r, v: group_requests.sync_group(r, v, groups),
            15: lambda r, v: group_requests.describe_groups(r, v, groups),
            16: lambda _, v: group_requests.list_groups(v, groups),
            19: lambda r, v: admin_requests.create_topics(r, v, topics),
            20: lambda r, v: admin_requests.delete_topics(r, v, topics),
            22: lambda r, _: admin_requests.init_producer_id(r, store),
            32: lambda r, v: admin_requests.describe_configs(r, v, topics),
            33: lambda r, _: admin_requests.alter_configs(r, topics),
            37: lambda r, _: admin_requests.create_partitions(r, topics),
            42: lambda r, _: group_requests.delete_groups(r, groups),
        }

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)
        connection: socket.socket = writer.get_extra_info("socket")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer = writer.get_extra_info("peername")
        client = str(peer[0]) if peer else ""
        try:
            await self._serve(reader, writer, client)
        except (MalformedRequestError, protocol.UnsupportedRequestError) as error:
            log.warning("connection closed", client=client, reason=str(error))
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client, or the broker, is going away
        except Exception:
            log.exception("connection closed by a fault of the broker", client=client)
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, client: str
    ) -> None:
        """Answer a connection's requests in their order, as Kafka does."""
        state = FetchState()
        while True:
            (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
            if not 0 <= length <= protocol.MAX_FRAME_BYTES:
                raise MalformedRequestError(f"{length} is no length of a request")
            frame = await reader.readexactly(length)
            header = protocol.read_request_header(frame)
            answer = await self._answer(header, frame, state, client)
            if answer is None:
                continue
            size = sum(len(part) for part in answer)
            writer.writelines([protocol.frame_prefix(header.correlation_id, size), *answer])
            await writer.drain()

    async def _answer(
        self, header: RequestHeader, frame: bytes, state: FetchState, client: str
    ) -> list[bytes] | None:
        if header.api_key == protocol.API_VERSIONS:
            return [protocol.encode_api_versions(header.api_version)]
        protocol.check_served(header)
        if header.api_key == protocol.FETCH:
            return await data_requests.fetch(header, frame, self._topics, state)
        request = protocol.decode_request(header, frame)
        if header.api_key == protocol.JOIN_GROUP:
            fields = await group_requests.join_group(
                request, header.api_version, self._groups, (header.client_id, client)
            )
        else:
            fields = self._handlers[header.api_key](request, header.api_version)
            if isinstance(fields, Awaitable):
                fields = await fields
        return None if fields is None else [protocol.encode_response(header, fields)]


async def serve(
    data_dir: Path,
    host: str = "127.0.0.1",
    port: int = 0,
    advertised_port: int | None = None,
) -> None:
    """Run a broker until the task is cancelled; raises DataDirectoryInUseError, OSError."""
    broker = Broker(data_dir, host, port, advertised_port)
    await broker.start()
    try:
        await asyncio.Event().wait()
    finally:
        await broker.stop()


def _lock(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        os.close(descriptor)
        raise DataDirectoryInUseError(
            f"another broker runs on {path.parent}; stop it, or choose another data directory"
        ) from error
    return descriptor
