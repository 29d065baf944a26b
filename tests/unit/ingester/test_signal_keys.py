"""The key of a source does not leave the ingester."""

import asyncio

from aiokafka import ConsumerRecord

from services.ingester.handler import SignalHandler
from shared.runtime.clock import ManualClock
from shared.runtime.pings import KEY_HEADER
from shared.runtime.settings import Settings


class Letters:
    """Stands where the publisher is, and keeps what is put aside."""

    def __init__(self):
        self.records = []

    async def dead_letter(self, record, stage, reason):
        self.records.append((record, stage, reason))

    async def partitions_of(self, topic):
        return 8

    async def send_batches(self, messages, own):
        return {}

    async def flush(self):
        return None


def test_dead_letters_do_not_carry_the_key():
    letters = Letters()
    settings = Settings(signal_source_keys={"cms": "s3cret"})
    handler = SignalHandler(settings, ManualClock(1e9), letters)
    headers = ((KEY_HEADER, b"s3cret"), ("trace", b"1"))
    record = ConsumerRecord("signals", 0, 7, 0, 0, None, b"no json", None, -1, -1, headers)
    asyncio.run(handler.handle([record]))
    ((kept, stage, _),) = letters.records
    assert (kept.headers, kept.value, kept.offset) == ((("trace", b"1"),), b"no json", 7)
    assert stage == "ingester"
    assert "s3cret" not in repr(settings)
