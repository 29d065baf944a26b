"""Between the processes and the broker: what takes long, is cut off, or never comes back."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, TypeVar

from aiokafka.errors import KafkaConnectionError, KafkaError, RequestTimedOutError

from services.verify.simulation.loop import VirtualLoop
from services.verify.simulation.process import OUTSIDE, Process, current

T = TypeVar("T")

REQUEST_SECONDS: Final = 3.0
"""A client gives up a request that is not answered for so long, unless it has its own patience."""

REFUSED_SECONDS: Final = 0.2
"""A server that is down says so soon."""

SLOWEST_SECONDS: Final = 0.4


class Network:
    """Ways between processes and the broker, each direction by itself."""

    def __init__(self, loop: VirtualLoop, rng: Random, slow_share: float) -> None:
        self.loop = loop
        self.is_broker_down = False
        self._random = rng.random
        self._slow_share = slow_share
        self.deaf: set[str] = set()
        """Processes that hear nothing from the broker."""
        self.mute: set[str] = set()
        """Processes that the broker hears nothing from."""
        self._waiting: list[Callable[[], None]] = []
        self.outside = OUTSIDE.context()

    def cut(self, name: str, *, mute: bool, deaf: bool) -> None:
        """Let nothing of a process through any more."""
        if mute:
            self.mute.add(name)
        if deaf:
            self.deaf.add(name)

    def heal(self, name: str) -> None:
        """Let everything through again; what was held up comes now."""
        self.mute.discard(name)
        self.deaf.discard(name)
        self.go_on()

    def go_on(self) -> None:
        """Let those go on who wait for the way or the broker to be there again."""
        waiting, self._waiting = self._waiting, []
        for call in waiting:
            self.loop.call_later(self.latency(), call, context=self.outside)

    def reaches(self, process: Process) -> bool:
        """Whether a process and the broker hear each other."""
        name = process.name
        return not (self.is_broker_down or name in self.mute or name in self.deaf)

    def latency(self) -> float:
        """How long a message takes."""
        draw = self._random()
        if draw < self._slow_share:
            return SLOWEST_SECONDS * self._random()
        return 0.0005 + 0.003 * draw

    def when_reached(self, call: Callable[[], None]) -> None:
        """Call as soon as somebody may be reached again."""
        self._waiting.append(call)

    async def ask(
        self, execute: Callable[[], "T | asyncio.Future[T]"], seconds: float = REQUEST_SECONDS
    ) -> T:
        """Let the broker do something, once at most.

        Args:
            execute: run at the broker; a future is answered when it is done.
            seconds: after which an answer is no longer waited for.

        Raises:
            KafkaConnectionError: the broker is down.
            RequestTimedOutError: there was no answer; whether it was done is not known.
        """
        exchange = _Exchange(self, current(), execute, seconds)
        return await exchange.answer  # type: ignore[no-any-return]

    async def query(self, execute: Callable[[], T], seconds: float = 40.0) -> T:
        """Ask for what changes nothing, until there is an answer.

        Raises:
            KafkaError: there is none after so long.
        """
        until = self.loop.now + seconds
        while True:
            try:
                return await self.ask(execute)
            except KafkaError:
                if self.loop.now > until:
                    raise
                await asyncio.sleep(0.1)


class _Exchange:
    """A request and its answer."""

    def __init__(
        self, network: Network, process: Process, execute: Callable[[], Any], seconds: float
    ) -> None:
        self.network, self.process, self.execute = network, process, execute
        self.loop = network.loop
        self.answer: asyncio.Future[Any] = self.loop.create_future()
        self._is_over = False
        if network.is_broker_down:
            self._fail_later(REFUSED_SECONDS, KafkaConnectionError("the broker is down"))
            return
        if not network.reaches(process):
            self._fail_later(seconds, RequestTimedOutError("no answer"))
        self._seconds = seconds
        self.loop.call_later(network.latency(), self._arrive, context=network.outside)

    def _arrive(self) -> None:
        network = self.network
        if self._is_over:
            return
        if network.is_broker_down:
            self._fail_later(REFUSED_SECONDS, KafkaConnectionError("the broker went down"))
        elif self.process.name in network.mute:
            # It waits in the sender's buffer, and comes late, unless the sender has given it up.
            self._fail_later(self._seconds, RequestTimedOutError("no answer"))
            network.when_reached(self._arrive)
        else:
            result = self._executed()
            if asyncio.isfuture(result):
                result.add_done_callback(lambda done: self._send_back(done.result()))
            else:
                self._send_back(result)

    def _executed(self) -> Any:
        """What the broker answers; it may be an error."""
        try:
            return self.execute()
        except KafkaError as error:
            return error

    def _send_back(self, result: Any) -> None:
        network = self.network
        if network.is_broker_down:
            # With the broker the connection ends, however long the sender is ready to wait.
            self._fail_later(REFUSED_SECONDS, KafkaConnectionError("the broker went down"))
            return
        if self.process.name in network.deaf:
            self._fail_later(self._seconds, RequestTimedOutError("the answer was lost"))
            return
        self.loop.call_later(network.latency(), self._hear, result, context=network.outside)

    def _hear(self, result: Any) -> None:
        self._is_over = True
        if self.answer.done():
            return
        if isinstance(result, BaseException):
            self.answer.set_exception(result)
        else:
            self.answer.set_result(result)

    def _fail_later(self, seconds: float, error: KafkaError) -> None:
        def fail() -> None:
            self._is_over = True
            if not self.answer.done():
                self.answer.set_exception(error)

        self.loop.call_later(seconds, fail, context=self.network.outside)
