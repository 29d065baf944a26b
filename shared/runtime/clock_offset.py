"""Where the broker's time lies, measured again and again by a record that the broker stamps.

A record's time of arrival lies between its sending and its acknowledgement, as NTP has it. So does
the offset of the clocks, and each measurement makes the interval smaller. Nothing is guessed: the
time of this process is only moved as far as it is proven to be wrong, and processes on the broker's
own machine are never moved at all.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from typing import Final

import structlog
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from shared.contracts.topics import CLOCK
from shared.runtime import metrics
from shared.runtime.kafka import appended_at, started_producer
from shared.runtime.settings import Settings
from shared.runtime.wall_time import WALL, WallTime, steady

log = structlog.get_logger(__name__)

ASK_SECONDS: Final = 2.0
"""Between two measurements."""

ANSWER_SECONDS: Final = 3.0
"""A broker that takes longer tells nothing."""

FIRST_ASKED: Final = 3
"""Measurements before a worker begins: the first one pays for connections."""

OUTDATED_SECONDS: Final = 60.0
"""What was measured so long ago is not shown any more."""

_STAMP_SECONDS: Final = 0.001
"""Brokers count whole milliseconds."""

LONGEST_BACK_SECONDS: Final = 2.0
"""A time that goes back by more while a worker runs leaves too much of what it remembers in the
future: hosts that may not be asked, signals that look repeated."""

_DRIFT: Final = 5e-4
"""By so much may two clocks run apart: what NTP corrects at most."""


class OffsetEstimate:
    """The interval in which another clock less our steady one lies. Pure."""

    def __init__(self) -> None:
        self.least, self.most = -math.inf, math.inf
        self._at = -math.inf

    def note(self, sent_at: float, stamped: float, received_at: float) -> None:
        """Take a measurement.

        Args:
            sent_at: steady seconds.
            stamped: the other clock's time, cut to milliseconds, at some moment between.
            received_at: steady seconds.
        """
        least, most = stamped - received_at, stamped + _STAMP_SECONDS - sent_at
        wider = _DRIFT * max(received_at - self._at, 0.0) if math.isfinite(self._at) else 0.0
        both = max(least, self.least - wider), min(most, self.most + wider)
        # Where they exclude each other the other clock was set: what was known of it is void.
        self.least, self.most = both if both[0] <= both[1] else (least, most)
        self._at = received_at

    @property
    def is_known(self) -> bool:
        """Whether there was a measurement."""
        return math.isfinite(self._at)

    @property
    def offset(self) -> float:
        """The middle: off by `error` at most."""
        return (self.least + self.most) / 2

    @property
    def error(self) -> float:
        """Half the interval; infinite before the first measurement."""
        return (self.most - self.least) / 2


class ClockOffset:
    """Measures the broker's time for as long as a worker runs, and lets the process go by it."""

    def __init__(
        self,
        settings: Settings,
        went_back: Callable[[float], None],
        wall: WallTime = WALL,
    ) -> None:
        """Measure nothing yet.

        Args:
            settings: of the process.
            went_back: told when the time was set back so far (seconds) that this process must not
                go on.
            wall: the time that goes by what is measured.
        """
        self._settings = settings
        self._went_back = went_back
        self._wall = wall
        self._producer: AIOKafkaProducer | None = None
        self.trouble: str | None = None
        """Why the broker's time is not known; None: it is, or nobody has asked yet."""
        self._is_running = False
        self._measured_at = -math.inf
        self.estimate = OffsetEstimate()
        metrics.CLOCK_OFFSET_SECONDS.set(math.nan)

    async def start(self) -> None:
        """Connect, and set the time of this process before anything else goes by it.

        A broker that does not tell its time stops nobody: the machine's clock is the time then.
        """
        with contextlib.suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS * FIRST_ASKED):
                await self._connect()
                for _ in range(FIRST_ASKED):
                    await self.measure()

    async def stop(self) -> None:
        """Disconnect."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def run(self, stopping: asyncio.Event) -> None:
        """Measure until `stopping` is set; ends disconnected."""
        self._is_running = True
        try:
            while not stopping.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), ASK_SECONDS)
                    return
                await self.measure()
                if steady() - self._measured_at > OUTDATED_SECONDS:
                    metrics.CLOCK_OFFSET_SECONDS.set(math.nan)
        finally:
            await self.stop()

    async def measure(self) -> bool:
        """Ask once.

        Returns:
            whether the broker told its time.
        """
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                producer = await self._connect()
                sent_at = steady()
                record = await producer.send_and_wait(
                    self._settings.topic(CLOCK.name), self._settings.instance.encode(), partition=0
                )
                received_at = steady()
        except (KafkaError, OSError, TimeoutError) as error:
            self._say(f"the broker does not tell its time: {str(error) or type(error).__name__}")
            return False
        stamped = appended_at(record)
        if stamped is None:
            self._say(
                f"topic {record.topic} has not the broker's times: freshet topics ensure --fix"
            )
            return False
        self._say(None)
        self.estimate.note(sent_at, stamped, received_at)
        self._go_by_it()
        return True

    def machine_offset(self) -> float:
        """Seconds by which this machine's clock is ahead of the broker's."""
        return time.time() - steady() - self.estimate.offset

    def ahead(self) -> float:
        """Seconds by which the time of this process may be ahead of the broker's, at most.

        Where the broker does not tell its time, the machines' clocks are taken to agree.
        """
        if not self.estimate.is_known:
            return 0.0
        return max(self._wall.now() - steady() - self.estimate.least, 0.0)

    def _go_by_it(self) -> None:
        self._measured_at = steady()
        ahead = self.machine_offset()
        metrics.CLOCK_OFFSET_SECONDS.set(ahead)
        stepped = self._wall.steer(self.estimate.least, self.estimate.most)
        if stepped:
            log.warning(
                "the time was set to the broker's",
                by_seconds=round(stepped, 3),
                machine_is_ahead_seconds=round(ahead, 3),
            )
        if stepped < -LONGEST_BACK_SECONDS and self._is_running:
            self._went_back(-stepped)

    async def _connect(self) -> AIOKafkaProducer:
        if self._producer is None:
            # One acknowledgement, nothing gathered, nothing stored twice that would matter.
            self._producer = await started_producer(
                self._settings,
                acks=1,
                enable_idempotence=False,
                linger_ms=0,
                request_timeout_ms=int(ANSWER_SECONDS * 1000),
            )
        return self._producer

    def _say(self, trouble: str | None) -> None:
        """Say once what is amiss."""
        if trouble is not None and trouble != self.trouble:
            log.warning(trouble)
        self.trouble = trouble
