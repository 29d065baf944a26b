"""The work of workers that traces go through, with and without, for `freshet bench tracing`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from aiokafka import ConsumerRecord
from aiokafka.producer.message_accumulator import BatchBuilder

from services.bench.ingester_pipeline import make_signals
from services.bench.scheduler_pipeline import make_shards
from services.estimator.application import apply_records
from services.estimator.compilation import warm_up as compile_estimator
from services.estimator.learning import learn, material_news
from services.estimator.shard import Shard as LearningShard
from services.estimator.traces import note_stored, outcomes_traced_in
from services.ingester.handler import SignalHandler
from services.ingester.traces import SignalTraces
from services.scheduler.flow.reader import Reader
from services.scheduler.flow.slot_filler import Emission, SlotFiller
from services.scheduler.flow.traces import PageTraces
from services.scheduler.warm_up import warm_up as compile_scheduler
from shared.contracts.codec import encode
from shared.contracts.identity import identify
from shared.contracts.messages import (
    Allotment,
    CrawlOutcome,
    Multipliers,
    PageSignal,
    PageUpdate,
)
from shared.contracts.topics import CRAWL_OUTCOMES, PAGE_SIGNALS, PAGE_UPDATES, Topic
from shared.pacing.slots import SlotPlan, SlotTimeline
from shared.runtime.acceptance import Acceptance
from shared.runtime.clock import SystemClock
from shared.runtime.dead_letters import Header
from shared.runtime.publisher import Place, filled_batches
from shared.runtime.settings import Settings, load_settings
from shared.runtime.tracing import Mark, Tracing
from shared.runtime.wall_time import WALL
from shared.units import SECONDS_PER_DAY

MESSAGES: Final = 4_000
"""Of a turn: some hundredths of a second."""

_ORIGIN: Final = 1.7e9
_SLOTS_PER_SECOND: Final = 4_000.0
_SIGNALS: Final = 0.5
"""For each crawl."""

_BATCH_BYTES: Final = 16 * 1024


class Work(Protocol):
    """A worker's."""

    messages: int
    """Of a turn."""

    def prepare(self) -> None:
        """Make what the next turn works at; not measured."""

    async def do(self, *, is_on: bool) -> None:
        """Do it."""


class _Producer:
    """Makes batches as a producer does, and sends none."""

    def create_batch(self) -> BatchBuilder:
        """An empty one."""
        return BatchBuilder(_BATCH_BYTES, 0)


class _Nowhere:
    """A publisher that fills batches, and sends none."""

    def __init__(self, settings: Settings) -> None:
        self._partitions = settings.partitions
        self._producer = _Producer()

    async def partitions_of(self, _topic: Topic) -> int:
        """As many as the settings say."""
        return self._partitions

    async def send_batches(
        self,
        messages: Mapping[Place, Sequence[tuple[bytes, bytes]]],
        own: Mapping[Place, Mapping[int, Sequence[Header]]],
    ) -> None:
        """Fill the batches."""
        for place, part in messages.items():
            filled_batches(self._producer, part, own=own.get(place, {}))

    async def flush(self) -> None:
        """Nothing is waiting."""


class _Ingesting:
    """Signals to batches of page-signals."""

    messages = MESSAGES

    def __init__(self, _pages: int, tracing: Tracing) -> None:
        settings = load_settings(
            signals_per_source_per_second=1e9, signals_from_others_per_second=1e9
        )
        nowhere: Any = _Nowhere(settings)
        clock = SystemClock()
        self._handlers = {is_on: SignalHandler(settings, clock, nowhere) for is_on in (False, True)}
        self._traces = {False: None, True: SignalTraces(tracing)}
        self._turn = 0
        self._records: list[ConsumerRecord] = []

    def prepare(self) -> None:
        """Signals of new pages."""
        self._turn += 1
        values = make_signals(MESSAGES, WALL.now(), seed=self._turn)
        new = [value.replace(b".html", b".%d" % self._turn) for value in values]
        self._records = [_record("signals", value) for value in new]

    async def do(self, *, is_on: bool) -> None:
        """Handle them."""
        handler = self._handlers[_place(self._turn, is_on)]
        handler.traces = self._traces[is_on]
        await handler.handle(self._records)


class _Scheduling:
    """Slots to batches of requests; their outcomes, and signals of some of the pages."""

    messages = MESSAGES

    def __init__(self, pages: int, tracing: Tracing) -> None:
        compile_scheduler()
        settings = load_settings(partitions=4, default_host_crawls_per_second=100.0)
        self._traces = {False: None, True: PageTraces(tracing)}
        self._share = tracing.share
        self._turn = 0
        self._random = np.random.default_rng(1)
        self._shards = {is_on: make_shards(settings, pages) for is_on in (False, True)}
        self._fillers = {
            is_on: SlotFiller(settings, SystemClock(), self._shards[is_on])
            for is_on in (False, True)
        }
        self._last: dict[bool, list[Emission]] = {False: [], True: []}
        self._read: dict[bool, list[tuple[int, str, list[ConsumerRecord]]]] = {}
        self._now = _ORIGIN
        self._producer = _Producer()

    def prepare(self) -> None:
        """Outcomes of what was asked for last, and signals, a share of them with a header."""
        self._turn += 1
        self._now += SECONDS_PER_DAY / 24  # or pages that were just crawled would have to wait
        self._read = {is_on: self._records_of(is_on) for is_on in (False, True)}

    def _records_of(self, is_on: bool) -> list[tuple[int, str, list[ConsumerRecord]]]:
        read = []
        for emission in self._last[_place(self._turn, is_on)]:
            shard, rows = emission.shard, emission.picks["row"].tolist()
            outcomes = [
                _outcome(shard.url_of(row), self._now, emission.spans.get(place))
                for place, row in enumerate(rows)
            ]
            about = rows[: int(_SIGNALS * len(rows))]
            drawn = self._random.random(len(about)) < self._share * is_on
            signals = [
                _signal(shard.url_of(row), self._now, with_header)
                for row, with_header in zip(about, drawn.tolist(), strict=True)
            ]
            read.append((shard.number, CRAWL_OUTCOMES.name, outcomes))
            read.append((shard.number, PAGE_SIGNALS.name, signals))
        return read

    async def do(self, *, is_on: bool) -> None:
        """Apply them, and fill the slots that have come."""
        place = _place(self._turn, is_on)
        traces, shards, filler = self._traces[is_on], self._shards[place], self._fillers[place]
        filler.traces = traces
        reader = Reader(Acceptance(self._now, self._now, False))
        for number, topic, records in self._read[is_on]:
            looking = traces if topic == PAGE_SIGNALS.name else None
            traced = looking.traced_in(records) if looking is not None else ()
            reader.apply(shards[number], topic, records)
            if looking is not None and traced:
                looking.applied(shards[number], traced)
        plan, until = _plan(self._now, len(shards)), self._now + MESSAGES / _SLOTS_PER_SECOND
        times, owners = SlotTimeline([plan]).between(self._now, until)
        emissions = filler.fill(times, owners, plan)
        for emission in emissions:
            headers = {place: span.mark.headers() for place, span in emission.spans.items()}
            filled_batches(self._producer, emission.messages, own=headers)
            for span in emission.spans.values():
                span.end(WALL.now())
        self._last[place] = emissions


class _Learning:
    """Outcomes to what is committed, without the commit."""

    messages = MESSAGES

    def __init__(self, pages: int, tracing: Tracing) -> None:
        compile_estimator()
        self._tracing = {False: None, True: tracing}
        self._share = tracing.share
        self._random = np.random.default_rng(1)
        self._urls = [f"https://host-{page % 400}.example/{page}" for page in range(pages)]
        self._shards = {is_on: LearningShard(0) for is_on in (False, True)}
        self._turn = 0
        self._now = _ORIGIN
        self._records: dict[bool, list[ConsumerRecord]] = {}
        updates = [PageUpdate("upsert", url, updated_at=0.0) for url in self._urls]
        for shard in self._shards.values():
            records = {PAGE_UPDATES.name: [_record(PAGE_UPDATES.name, encode(u)) for u in updates]}
            apply_records(shard, records, Acceptance(self._now, self._now, False), 0.0)

    def prepare(self) -> None:
        """Outcomes of random pages, a share of them with a header where traces are on."""
        self._turn += 1
        self._now += SECONDS_PER_DAY / 24
        chosen = self._random.choice(len(self._urls), MESSAGES, replace=False).tolist()
        drawn = self._random.random(MESSAGES) < self._share
        plain = [_outcome(self._urls[page], self._now, None) for page in chosen]
        marked = [
            _with_header(record) if with_header else record
            for record, with_header in zip(plain, drawn.tolist(), strict=True)
        ]
        self._records = {False: plain, True: marked}

    async def do(self, *, is_on: bool) -> None:
        """Apply them, and learn."""
        records = {CRAWL_OUTCOMES.name: self._records[is_on]}
        shard = self._shards[_place(self._turn, is_on)]
        acceptance = Acceptance(self._now, self._now, False)
        traced = outcomes_traced_in(self._tracing[is_on], {0: records})
        done = apply_records(shard, records, acceptance, 0.0)
        learn(done)
        material_news(done, 0.05, self._now)
        note_stored(self._tracing[is_on], traced, done.refused)


WORKS: Final[dict[str, Callable[[int, Tracing], Work]]] = {
    "ingester": _Ingesting,
    "scheduler": _Scheduling,
    "estimator": _Learning,
}
"""Worker → what makes its work, of so many pages."""


def _place(turn: int, is_on: bool) -> bool:
    """Which of two that are told the same does the work of a turn. Where they are in memory
    differs, and makes more of a difference than traces do: they take turns."""
    return is_on != (turn % 4 > 1)


def _plan(now: float, shards: int) -> SlotPlan:
    allotments = [Allotment(number, 1.0 / shards) for number in range(shards)]
    return SlotPlan.from_message(Multipliers(1, now, now, 0.0, _SLOTS_PER_SECOND, 0.0, allotments))


def _record(topic: str, value: bytes, headers: Sequence[Header] = ()) -> ConsumerRecord:
    at = int(1000 * WALL.now())
    return ConsumerRecord(topic, 0, 0, at, 0, None, value, None, -1, -1, tuple(headers))


def _with_header(record: ConsumerRecord) -> ConsumerRecord:
    return _record(record.topic, record.value, Mark(1, 1).headers())


def _outcome(url: str, now: float, span: Any) -> ConsumerRecord:
    outcome = CrawlOutcome(url, now - 0.01, identify(url).host, None, "unchanged")
    headers = span.mark.headers() if span is not None else ()
    return _record(CRAWL_OUTCOMES.name, encode(outcome), headers)


def _signal(url: str, now: float, with_header: bool) -> ConsumerRecord:
    page = identify(url)
    signal = PageSignal(page.page_id, page.url, page.host, "feed", now - 0.005)
    headers = Mark(1, 1).headers() if with_header else ()
    return _record(PAGE_SIGNALS.name, encode(signal), headers)
