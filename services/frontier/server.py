"""gRPC around the service: what is said on the wire, within limits."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import grpc
import structlog
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from services.frontier import metrics
from services.frontier.api.urlfrontier_pb2 import DESCRIPTOR
from services.frontier.refusing import Refused
from services.frontier.streams import Stopping

log = structlog.get_logger(__name__)

SERVICE: Final = "URLFrontier"
STOP_SECONDS: Final = 3.0
"""Calls under way are given so long at the stop."""

IDLE_SECONDS: Final = 600
"""A connection without a call is closed after so long."""

MOST_HEADER_BYTES: Final = 8 * 1024

_BUG: Final = "this is a fault of Freshet's, and is in its log"


class Server:
    """Listens for calls."""

    def __init__(
        self, methods: Mapping[str, Any], address: str, most_calls: int, most_bytes: int
    ) -> None:
        """Make it; it does not listen yet.

        Args:
            methods: name of a call → what answers it.
            address: host:port.
            most_calls: at once; others are told to come again.
            most_bytes: of a message.
        """
        self._methods = methods
        self._address = address
        self._most_calls = most_calls
        self._most_bytes = most_bytes
        self._server: Any = None

    async def open(self) -> None:
        """Listen.

        Raises:
            RuntimeError: the port is taken.
        """
        self._server = grpc.aio.server(
            maximum_concurrent_rpcs=self._most_calls,
            options=[
                ("grpc.max_receive_message_length", self._most_bytes),
                ("grpc.max_metadata_size", MOST_HEADER_BYTES),
                ("grpc.max_connection_idle_ms", IDLE_SECONDS * 1000),
                # Else two of them could share a port, and each have half of the calls.
                ("grpc.so_reuseport", 0),
            ],
        )
        self._server.add_generic_rpc_handlers((handler_of(self._methods),))
        self._server.add_insecure_port(self._address)
        await self._server.start()

    async def close(self) -> None:
        """Take no more calls, and finish those under way."""
        if self._server is not None:
            await self._server.stop(STOP_SECONDS)


def handler_of(methods: Mapping[str, Any]) -> Any:
    """gRPC's handler of the service: of each call that the API has."""
    service = DESCRIPTOR.services_by_name[SERVICE]
    made = {}
    for method in service.methods:
        name, answer = method.name, methods[method.name]
        # Not by gRPC: what is no message would be a fault of ours, with a traceback.
        read = _reader(GetMessageClass(method.input_type).FromString)
        streams = {
            (False, False): (grpc.unary_unary_rpc_method_handler, _one(name, read, answer)),
            (False, True): (grpc.unary_stream_rpc_method_handler, _many(name, read, answer)),
            (True, True): (grpc.stream_stream_rpc_method_handler, _many(name, _each(read), answer)),
        }
        make, behaviour = streams[method.client_streaming, method.server_streaming]
        made[name] = make(
            behaviour,
            response_serializer=GetMessageClass(method.output_type).SerializeToString,
        )
    return grpc.method_handlers_generic_handler(service.full_name, made)


def _reader(parse: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """What reads a message, or refuses it."""

    def read(sent: bytes) -> Any:
        try:
            return parse(sent)
        except DecodeError as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"it cannot be read: {error}") from None

    return read


def _each(read: Callable[[bytes], Any]) -> Callable[[AsyncIterator[bytes]], AsyncIterator[Any]]:
    """The same of a stream of messages."""

    async def reading(sent: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for message in sent:
            yield read(message)

    return reading


def _one(name: str, read: Callable[[bytes], Any], answer: Callable[[Any], Awaitable[Any]]) -> Any:
    async def call(request: bytes, context: Any) -> Any:
        try:
            found = await answer(read(request))
        except Exception as error:
            await _end(name, context, error)
            raise
        metrics.CALLS.labels(name, "OK").inc()
        return found

    return call


def _many(
    name: str, read: Callable[[Any], Any], answer: Callable[[Any], AsyncIterator[Any]]
) -> Any:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            # They are generators.
            async with aclosing(answer(read(request))) as answers:  # type: ignore[type-var]
                async for found in answers:
                    yield found
        except Exception as error:
            await _end(name, context, error)
            raise
        metrics.CALLS.labels(name, "OK").inc()

    return call


async def _end(name: str, context: Any, error: Exception) -> None:
    """End a call with the status that fits, which raises."""
    if isinstance(error, Refused):
        code, text = error.code, str(error)
    elif isinstance(error, Stopping):
        code, text = (
            grpc.StatusCode.UNAVAILABLE,
            "the worker stops: send again what it has not acknowledged",
        )
    else:
        log.error("a call has failed", method=name, exc_info=error)
        code, text = grpc.StatusCode.INTERNAL, _BUG
    metrics.CALLS.labels(name, code.name).inc()
    await context.abort(code, text)
