"""What is published arrives or is told of, and what is put aside keeps its bytes."""

import pytest
from aiokafka.errors import KafkaTimeoutError
from group_member import Recorder, member, settings_for, until

from shared.contracts.topics import DEAD_LETTERS, MULTIPLIERS, PAGE_SIGNALS
from shared.runtime.follower import Follower


async def test_a_dead_letter_keeps_the_bytes_and_says_why(broker, prefix, publisher):
    await publisher.send(PAGE_SIGNALS, b"k", b"\xff not json", partition=0)
    await publisher.flush()
    letters = []

    class Poisoned(Recorder):
        async def handle(self, batch):
            for partitions in batch.values():
                for records in partitions.values():
                    for record in records:
                        await publisher.dead_letter(record, "test", "it is not JSON")
            await super().handle(batch)

    recorder = Poisoned({})
    async with member(settings_for(broker, prefix), recorder):
        await until(lambda: len(recorder.seen) == 1)
    await publisher.flush()
    follower = Follower(settings_for(broker, prefix), DEAD_LETTERS, letters.append)
    await follower.start()
    await follower.stop()
    headers = dict(letters[0].headers)
    assert letters[0].value == b"\xff not json"
    assert letters[0].key == b"k"
    assert headers["topic"] == f"{prefix}page-signals".encode()
    assert (headers["partition"], headers["offset"]) == (b"0", b"0")
    assert (headers["stage"], headers["error"]) == (b"test", b"it is not JSON")


async def test_a_record_as_large_as_the_broker_takes_can_still_be_put_aside(
    broker, prefix, publisher
):
    """Its headers would push the letter over the limit: it is cut, and says so."""
    settings = settings_for(broker, prefix)
    huge = b"x" * 1_048_400
    received, letters = [], []
    await publisher.send(MULTIPLIERS, b"k", huge, partition=0)
    await publisher.flush()
    source = Follower(settings, MULTIPLIERS, received.append)
    await source.start()
    await source.stop()
    await publisher.dead_letter(received[0], "test", "too large")
    await publisher.flush()
    follower = Follower(settings, DEAD_LETTERS, letters.append)
    await follower.start()
    await follower.stop()
    assert len(letters[0].value) == 900_000
    assert dict(letters[0].headers)["cut-from-bytes"] == b"1048400"


async def test_a_flush_tells_of_a_message_that_was_lost(broker, prefix, publisher):
    lost = await publisher.send(MULTIPLIERS, b"k", b"v", partition=0)
    if not lost.done():
        lost.set_exception(KafkaTimeoutError())
    with pytest.raises(KafkaTimeoutError):
        await publisher.flush()
    await publisher.flush()
