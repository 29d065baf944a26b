"""Faults of members of groups, and of what becomes of signals."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from aiokafka import TopicPartition

import services.ingester.handler as ingester_handler
from services.ingester.debounce import Debouncer
from services.ingester.handler import SignalHandler
from services.ingester.sifting import Sifter
from services.scheduler.flow.handler import SchedulerHandler
from services.scheduler.flow.imported import ImportWatch
from services.verify.mutants.mutant import Planted, Promise, breaks
from services.verify.simulation.replacing import instead
from shared.contracts.identity import shard_of
from shared.runtime import kafka, telling
from shared.runtime.continuity import Continuity
from shared.runtime.group_reading import GroupReader
from shared.runtime.polling import Polling
from shared.runtime.publisher import Publisher

_GATHERED_SECONDS: Final = 0.3
"""So long a producer gathers what it sends at once, where it is told to. Without it, a kill between
a commit and what was sent just before is too rare for a few seeds."""


@breaks(Promise.SIGNALS)
def repeated_by_page_alone() -> Planted:
    """A signal of one source is taken for a repetition of another source's."""
    return instead(Sifter, "_source_key", lambda *_: 0)


@breaks(Promise.SIGNALS)
def repeated_for_too_long() -> Planted:
    """A signal counts as a repetition for ten times as long as is set."""
    return instead(ingester_handler, "Debouncer", lambda seconds: Debouncer(10 * seconds))


@breaks(Promise.SIGNALS)
def signals_on_the_next_shard() -> Planted:
    """A signal goes to the shard behind its host's."""

    def next_shard(host: str, shards: int) -> int:
        return (shard_of(host, shards) + 1) % shards

    return instead(ingester_handler, "shard_of", next_shard)


@breaks(Promise.LOST, "kill", faults=24, estimators=1, schedulers=1, coordinators=1)
def committed_before_it_is_done() -> Planted:
    """The ingester commits a batch of signals when it has read it, and then publishes."""

    async def take(self: GroupReader, fetched: dict[TopicPartition, Sequence[Any]]) -> None:
        records = [record for part in fetched.values() for record in part]
        if records:
            await self._commit({tp: part[-1].offset + 1 for tp, part in fetched.items()})
            await self._handle(records)

    return instead(GroupReader, "_take", take)


@breaks(Promise.LOST, "broker-down", "kill", "cut-broker", estimators=1, coordinators=1)
def acknowledgements_not_waited_for() -> Planted:
    """The ingester takes for published what it is about to send."""
    send_batches = Publisher.send_batches
    about_to_be_sent = set()

    async def send_later(self: Publisher, messages: Any, **more: Any) -> None:
        await asyncio.sleep(_GATHERED_SECONDS)
        await send_batches(self, messages, **more)

    async def send(self: Publisher, messages: Any, **more: Any) -> dict[Any, int]:
        task = asyncio.ensure_future(send_later(self, messages, **more))
        about_to_be_sent.add(task)
        task.add_done_callback(about_to_be_sent.discard)
        return {}

    return instead(Publisher, "send_batches", send)


@breaks(Promise.AWAY, "long-database-outage")
def waiting_without_polling() -> Planted:
    """A worker that waits for its database does not poll, and its group gives it up."""

    async def never(_self: Polling) -> None:
        await asyncio.Event().wait()

    return instead(Polling, "_poll", never)


@breaks(Promise.BAD, "bad-message")
def refused_signals_not_kept() -> Planted:
    """A signal that cannot be taken is left out, and nobody is told."""
    return instead(SignalHandler, "_copied", lambda *_: iter(()))


@breaks(Promise.TRANSACTIONS, "kill", "marker")
def markers_not_noticed() -> Planted:
    """A reader does not notice that it has read over the end of a transaction."""

    async def nothing(*_: Any) -> dict[TopicPartition, int]:
        return {}

    return instead(telling, "passed_over", nothing)


@breaks(Promise.TRANSACTIONS, "kill", "marker")
def end_counted_in_records() -> Planted:
    """Where a topic ends is taken for a record, though it is the end of a transaction."""

    def reach(self: SchedulerHandler, key: tuple[str, int], position: int) -> None:
        end = self._behind.get(key)
        if end is not None and position > end:
            del self._behind[key]

    return instead(SchedulerHandler, "_reach", reach)


@breaks(Promise.TRANSACTIONS, "transaction")
def what_is_not_committed_is_read() -> Planted:
    """A worker reads what stands in transactions that may be given up."""
    module: Any = kafka
    make = module.AIOKafkaConsumer

    def reckless(**options: Any) -> Any:
        return make(**(options | {"isolation_level": "read_uncommitted"}))

    return instead(kafka, "AIOKafkaConsumer", reckless)


@breaks(Promise.GAP, "retention")
def gaps_passed_over_in_silence() -> Planted:
    """Whoever finds that records are gone says nothing of it."""

    def start(_self: Continuity, _tp: TopicPartition, wanted: int | None, begin: int) -> int:
        return begin if wanted is None else max(wanted, begin)

    return instead(Continuity, "_start", start)


async def _begin_anew(self: Continuity, refused: Any, _done: Any) -> dict[TopicPartition, int]:
    return await self.starts(dict.fromkeys(refused))


@contextmanager
def _reading_on() -> Iterator[None]:
    async def check(_self: Continuity) -> None:
        return

    with instead(Continuity, "behind", _begin_anew), instead(Continuity, "check", check):
        yield


@breaks(Promise.GAP, "records-lost")
def reading_on_beyond_the_end() -> Planted:
    """A worker whose position is beyond the end of a log begins anew by itself."""
    return _reading_on()


@breaks(Promise.GAP, "topic-anew")
def reading_on_in_another_topic() -> Planted:
    """A worker whose topic was made anew begins anew by itself."""
    return _reading_on()


@breaks(Promise.LOST, "import")
def imports_not_looked_for() -> Planted:
    """A scheduler takes no pages that come by import while it runs."""

    async def nothing(*_: Any) -> bool:
        return False

    return instead(ImportWatch, "_take_next", nothing)
