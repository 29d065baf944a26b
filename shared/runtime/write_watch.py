"""Whether brokers acknowledge what this process writes.

They may answer and take nothing: a partition has fewer copies in sync than its topic demands, or
its leader is looked for. aiokafka sends such a batch again and again, for ever where it numbers its
records, and tells nobody; who waits for it is alive. There is one watch for all producers of a
process.
"""

import asyncio
import time
from typing import Any, Final

import structlog
from aiokafka import TopicPartition

log = structlog.get_logger(__name__)

TOLD_SECONDS: Final = 5.0
"""Another broker leads sooner, where one is lost or restarted: nobody need hear of that."""


class WriteWatch:
    """Batches that were refused for now, and are sent again until a broker takes them."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[Any], tuple[str, float]] = {}
        """The end of each → its topic, and when it was first refused."""
        self._is_told = False
        self.refused_at = float("-inf")
        """Until when (monotonic) something waited so: a refusal ends with an answer."""

    def note(self, tp: TopicPartition, end: "asyncio.Future[Any]") -> None:
        """A batch was sent and is not taken.

        Args:
            tp: where it goes.
            end: done when it is stored, or given up.
        """
        self.refused_at = time.monotonic()
        if end not in self._waiting:
            self._waiting[end] = tp.topic, self.refused_at
            end.add_done_callback(self._forget)
        if not self._is_told and (reason := self.trouble) is not None:
            self._is_told = True
            log.warning("what is written is not acknowledged: waiting for it", reason=reason)

    @property
    def trouble(self) -> str | None:
        """Why what is written is not acknowledged; None: it is, or soon will be."""
        since = time.monotonic() - TOLD_SECONDS
        topics = sorted({topic for topic, begun in self._waiting.values() if begun <= since})
        if not topics:
            return None
        return (
            f"brokers answer, but do not acknowledge what is written to {', '.join(topics)}: it "
            "waits until enough of them are in sync (min.insync.replicas)"
        )

    def _forget(self, end: "asyncio.Future[Any]") -> None:
        del self._waiting[end]
        self.refused_at = time.monotonic()
        if self._is_told and not self._waiting:
            self._is_told = False
            log.info("what is written is acknowledged again")


WRITES: Final = WriteWatch()
"""Of this process."""
