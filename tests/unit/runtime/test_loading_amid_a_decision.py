"""What is loaded anew is read from where it was loaded, though the group decides just then.

The reader is real; the broker and its client are the simulator's.
"""

import asyncio

from simulated_reading import SimulatedReading

import shared.runtime.consumer
from services.verify.simulation.kafka.broker import Given
from shared.contracts.topics import PAGE_SIGNALS
from shared.runtime import telling
from shared.runtime.consumer import BatchConsumer
from shared.runtime.settings import Settings

RECORDS = 6
PARTITIONS = 2


async def yes():
    return True


class Handler:
    """Begins anew with what it loads, and has the group decide when that is about to be read."""

    def __init__(self, broker):
        self.reader = None
        self.seen = []
        self.decisions = 0
        self._broker, self._loads = broker, 0

    async def assigned(self, partitions):
        self._loads += 1
        self.seen = [(partition, _) for partition, _ in self.seen if partition not in partitions]
        return {(PAGE_SIGNALS.name, partition): 0 for partition in partitions}

    async def revoked(self, partitions):
        pass

    async def handle(self, batch):
        for partition, records in batch[PAGE_SIGNALS.name].items():
            self.seen += [(partition, record.offset) for record in records]

    async def reached(self, _positions):
        if self._loads == 2 and not self.decisions:
            self.decisions += 1
            (group,) = self._broker.groups.all()
            self._broker.groups.rebalance(group, "somebody joins")
            while self.reader.settled:
                await asyncio.sleep(0.05)


class Steps:
    """Notes what is done with partitions; what was made of them is not with the brokers at once."""

    def __init__(self):
        self.steps, self._waits = [], iter([False, False, True])

    async def assigned(self, partitions):
        self.steps.append(("loaded", sorted(partitions)))
        return {(PAGE_SIGNALS.name, partition): 0 for partition in partitions}

    async def revoked(self, partitions):
        self.steps.append(("let go", sorted(partitions)))

    async def handle(self, batch):
        pass

    async def written_out(self):
        is_done = next(self._waits)
        self.steps.append(("written out", is_done))
        return is_done


async def reload_one(reader, ready):
    """Let a reader run until it is ready, and on, with a partition loaded anew."""
    stopping = asyncio.Event()
    await reader.start()
    reading = asyncio.ensure_future(reader.run(stopping))
    await ready
    reader.reload({1})
    await asyncio.sleep(20.0)
    stopping.set()
    await reading
    await reader.stop()


def test_what_was_made_of_a_partition_is_with_the_brokers_before_it_is_loaded_anew(monkeypatch):
    """Who loads it looks there for what is under way."""
    simulated = SimulatedReading(monkeypatch, shared.runtime.consumer, 1, PARTITIONS)
    handler = Steps()

    async def read():
        settings = Settings(partitions=PARTITIONS)
        reader = BatchConsumer(
            *(settings, "group", (PAGE_SIGNALS,), handler), written_out=handler.written_out
        )
        await reload_one(reader, asyncio.sleep(10.0))

    simulated.run(read())
    assert handler.steps == [
        *[("loaded", [0, 1]), ("let go", [1])],
        *[("written out", False), ("written out", False), ("written out", True)],
        ("loaded", [1]),
    ]


def test_records_are_not_taken_for_passed_over_while_the_group_decides(monkeypatch):
    monkeypatch.setattr(telling, "PASSED_OVER_SECONDS", 0.0)
    simulated = SimulatedReading(monkeypatch, shared.runtime.consumer, 1, PARTITIONS)
    for partition in range(PARTITIONS):
        given = [Given(b"host", b"{}", 1000 * n) for n in range(RECORDS)]
        simulated.broker.partition(PAGE_SIGNALS.name, partition).append(given, 0.0)
    handler = Handler(simulated.broker)
    everything = [(p, n) for p in range(PARTITIONS) for n in range(RECORDS)]

    async def all_are_seen():
        while len(handler.seen) < len(everything):
            await asyncio.sleep(0.1)

    async def read():
        settings = Settings(partitions=PARTITIONS)
        reader = handler.reader = BatchConsumer(
            *(settings, "group", (PAGE_SIGNALS,), handler),
            reached=handler.reached,
            written_out=yes,
            loads_beside=True,
        )
        await reload_one(reader, all_are_seen())

    simulated.run(read())
    assert handler.decisions == 1
    assert sorted(handler.seen) == everything
