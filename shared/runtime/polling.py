"""Staying a member of a group, however long something is waited for.

aiokafka takes a reader that has not asked for records for `max_poll_interval_ms` for a dead one: it
gives its partitions back, and joins again only when records are asked for. But a worker may have to
wait for an hour: a handler for its database, a load for both servers, a publication for its broker,
and the group for its members. So somebody asks all the time, of a partition that does not exist:
that takes no records, and what was read ahead of the others stays where it is.

That a handler hangs is for the watchdog to find: no sign of life comes from here.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import InvalidSessionTimeoutError

from shared.runtime.settings import SettingsError
from shared.runtime.stopping import end

POLL_SECONDS: Final = 1.0
"""Between two questions."""

_NOWHERE: Final = TopicPartition("", -1)


class Polling:
    """Asks for no records, beside the loop that reads."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self._consumer = consumer
        self._failure: Exception | None = None

    async def beside(
        self,
        reading: Callable[[], Coroutine[Any, Any, None]],
        *more: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        """Run a reading loop to its end, and poll beside it.

        Args:
            reading: what ends by itself; it calls `check` now and then.
            more: runs beside it, for as long as it does.

        Raises:
            SettingsError: the broker has no member with the session timeout of the settings.
        """
        tasks = [asyncio.ensure_future(work()) for work in (self._poll, *more)]
        try:
            await reading()
        except InvalidSessionTimeoutError as error:
            raise SettingsError(
                "the broker takes nobody with FRESHET_KAFKA_SESSION_TIMEOUT_SECONDS as it is set: "
                "give one between its group.min.session.timeout.ms and "
                "group.max.session.timeout.ms (6 and 1800 seconds, unless somebody changed them)"
            ) from error
        finally:
            # What is cut off here is at its end anyway: aiokafka counts on for a question that
            # was cancelled, and would never again find the reader idle.
            await end(*tasks)

    def check(self) -> None:
        """Say what a reader would have been told when it asked for records.

        Raises:
            KafkaError: the group does not let us in.
        """
        if self._failure is not None:
            raise self._failure

    async def _poll(self) -> None:
        try:
            while True:
                # While the group decides, this waits until it has.
                await self._consumer.getmany(_NOWHERE, timeout_ms=0)
                await asyncio.sleep(POLL_SECONDS)
        except Exception as error:  # raised in the reading loop, after its batch
            self._failure = error
