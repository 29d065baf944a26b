"""Dead letters on both brokers: listed, replayed as they came, dropped, and never twice."""

import asyncio
import json
import uuid

import pytest
from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from click.testing import CliRunner
from workers import variables_of

from services.cli.dead_letters import Choice, deal_with, newest, since_of
from services.cli.main import main
from shared.contracts.topics import CRAWL_OUTCOMES, DEAD_LETTERS, HOST_LIMITS, PAGE_SIGNALS, SIGNALS
from shared.runtime.dead_letters import Handled, Letter, letter_of, mark_of
from shared.runtime.kafka import ensure_topics, make_consumer
from shared.runtime.publisher import Publisher
from shared.runtime.settings import load_settings
from shared.runtime.wall_time import WALL

RECORDS = (
    (PAGE_SIGNALS, 1, b"host.example", b"\xff not JSON", [("trace", b"17"), ("null", None)]),
    (PAGE_SIGNALS, 1, b"", b"", []),
    (CRAWL_OUTCOMES, 3, None, None, [("trace", b"18")]),
    (SIGNALS, 0, None, b"{}", []),
    (CRAWL_OUTCOMES, 2, b"k", b"[1]", [("same", b"1"), ("same", b"2")]),
)


@pytest.fixture
async def publisher(broker):
    settings = load_settings(
        kafka_bootstrap_servers=broker.bootstrap_servers,
        topic_prefix=f"d{uuid.uuid4().hex}.",
        partitions=4,
    )
    await ensure_topics(settings)
    made = Publisher(settings)
    await made.start()
    yield made
    await made.stop()


async def write(publisher, topic, partition, key, value, headers, timestamp=None):
    batch = publisher.producer.create_batch()
    batch.append(timestamp=timestamp, key=key, value=value, headers=headers)
    name = publisher.settings.topic(topic.name)
    return await (await publisher.producer.send_batch(batch, name, partition=partition))


async def read(settings, topic, partition):
    consumer = make_consumer(settings)
    await consumer.start()
    try:
        tp = TopicPartition(settings.topic(topic.name), partition)
        consumer.assign([tp])
        end, records = (await consumer.end_offsets([tp]))[tp], []
        while await consumer.position(tp) < end:
            records += (await consumer.getmany(tp, timeout_ms=100)).get(tp, [])
        return records
    finally:
        await consumer.stop()


def content(record):
    # The time of some topics' records is the broker's, not their sender's.
    time = record.timestamp if record.timestamp_type == 0 else None
    return record.key, record.value, list(record.headers), time


@pytest.fixture
async def letters(publisher):
    """Each of `RECORDS`, written and set aside."""
    written = []
    for number, (topic, partition, key, value, headers) in enumerate(RECORDS):
        # Just now: older ones a broker may delete between two lines of this test.
        at = round(1000 * WALL.now()) - 1000 + number
        await write(publisher, topic, partition, key, value, headers, at)
        written.append((await read(publisher.settings, topic, partition))[-1])
    for number, record in enumerate(written):
        stage = "ingester" if number == 3 else "estimator"
        await publisher.dead_letter(record, stage, f"Reason {number}")
    await publisher.flush()
    return written


def silent(_done, _total):
    pass


EVERYTHING = Choice()


async def replay(settings, choice=EVERYTHING, action="replayed", dry_run=False):
    return await deal_with(settings, choice, action, dry_run=dry_run, progress=silent)


async def test_a_replayed_letter_is_the_record_as_it_came(publisher, letters):
    dealt = await replay(publisher.settings)
    assert (dealt.matched, dealt.done, dealt.failed) == (5, 5, 0)
    for topic, partition, *_ in RECORDS:
        records = await read(publisher.settings, topic, partition)
        first, second = records[: len(records) // 2], records[len(records) // 2 :]
        assert [content(record) for record in first] == [content(record) for record in second]


async def test_nothing_is_dealt_with_twice(publisher, letters):
    settings = publisher.settings
    progress = []
    only = Choice(topic="crawl-outcomes")
    assert (await replay(settings, only, dry_run=True)).done == 2
    dealt = await deal_with(
        settings, only, "replayed", dry_run=False, progress=lambda *at: progress.append(at)
    )
    assert (dealt.matched, dealt.done, dealt.handled_before) == (2, 2, 0)
    assert progress[-1] == (5, 5)
    again = await replay(settings, only)
    assert (again.matched, again.done, again.handled_before) == (2, 0, 2)
    assert (await replay(settings, Choice(stage="ingester"), "dropped")).done == 1
    rest = await replay(settings)
    assert (rest.matched, rest.done, rest.handled_before) == (5, 2, 3)
    assert len(await read(settings, SIGNALS, 0)) == 1
    assert len(await read(settings, CRAWL_OUTCOMES, 3)) == 2
    assert [handled for _, handled in await newest(settings, Choice(), 20)] == [
        *("replayed", "replayed", "replayed", "dropped", "replayed")
    ]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (Choice(reason="reason 2"), [2]),
        (Choice(first=1, last=3), [1, 2, 3]),
        (Choice(first=4), [4]),
        (Choice(stage="ingester"), [3]),
        (Choice(topic="page-signals"), [0, 1]),
        (Choice(since=4e9), []),
        (Choice(since=0.0, topic="signals"), [3]),
        (Choice(), [3, 4]),
    ],
)
async def test_letters_are_chosen_by_what_they_say(publisher, letters, choice, found):
    count = 2 if choice.is_everything else 20
    assert [letter.offset for letter, _ in await newest(publisher.settings, choice, count)] == found


async def test_what_cannot_be_replayed_stays_and_says_why(publisher):
    settings = publisher.settings
    name = settings.topic(DEAD_LETTERS.name)
    await write(publisher, DEAD_LETTERS, 0, b"k", b"?", [("topic", None), ("error", b"\xff")])
    forged = [("topic", b"elsewhere"), ("partition", b"0")]
    await write(publisher, DEAD_LETTERS, 0, b"k", b"?", forged)
    looped = [("topic", name.encode()), ("partition", b"0")]
    await write(publisher, DEAD_LETTERS, 0, b"k", b"?", looped)
    await write(publisher, DEAD_LETTERS, 0, b"k", b"not ranges", [("handled", b"dropped")])
    await write(publisher, SIGNALS, 0, b"k", b"x" * 950_000, [])
    [large] = await read(settings, SIGNALS, 0)
    await publisher.dead_letter(large, "ingester", "too large")
    # A compacted topic takes no record without a key, and the broker says so.
    keyless = [("topic", settings.topic(HOST_LIMITS.name).encode()), ("partition", b"0")]
    await write(publisher, DEAD_LETTERS, 0, None, b"{}", keyless)
    good = [("topic", settings.topic(HOST_LIMITS.name).encode()), ("partition", b"0")]
    await write(publisher, DEAD_LETTERS, 0, b"h.example", b"{}", good)
    dealt = await replay(settings)
    assert (dealt.matched, dealt.done, dealt.failed) == (6, 1, 5)
    reasons = {one["letter"]: one["reason"] for one in dealt.reasons}
    assert "no topic of this system" in reasons[0]
    assert "elsewhere" in reasons[1]
    assert "no topic of this system" in reasons[2]
    assert "cut-from-bytes" in reasons[4]
    assert "the broker refuses it" in reasons[5]
    assert len(await read(settings, HOST_LIMITS, 0)) == 1
    assert (await replay(settings, action="dropped")).done == 5
    assert (await replay(settings)).handled_before == 6


async def test_letters_of_places_that_are_not_there_hold_up_no_other(publisher, monkeypatch):
    """As where a topic was made anew: nothing is sent again and again for them."""
    settings = publisher.settings
    name = settings.topic(PAGE_SIGNALS.name).encode()
    for partition in (b"1", b"7", b"123456789012345678", b"2"):
        came_from = [("topic", name), ("partition", partition)]
        await write(publisher, DEAD_LETTERS, 0, b"k", b"{}", came_from)
    for variable, value in variables_of(settings).items():
        monkeypatch.setenv(variable, value)

    async def run(*arguments):
        command = ["dead-letters", "replay", "--json", *arguments]
        result = await asyncio.to_thread(CliRunner().invoke, main, command)
        return result.exit_code, json.loads(result.stdout), result.stderr

    code, dry, _ = await run("--dry-run")
    assert (code, dry["would_be_replayed"], dry["failed"]) == (0, 2, 2)
    code, done, said = await run()
    assert (code, done["replayed"], done["failed"]) == (1, 2, 2)
    assert [one["letter"] for one in done["failures"]] == [1, 2]
    assert "has 4 partitions, and it came from 7" in done["failures"][0]["reason"]
    assert "2 letters could not be replayed, and stay" in said
    code, again, _ = await run()
    assert (code, again["replayed"], again["handled_before"]) == (1, 0, 2)
    assert [len(await read(settings, PAGE_SIGNALS, n)) for n in range(4)] == [0, 1, 1, 0]


async def test_letters_are_listed_however_many_marks_come_after_them(
    publisher, letters, monkeypatch
):
    monkeypatch.setattr("services.cli.dead_letters._TAIL", 3)
    for number in (0, 1) * 10:
        value, headers = mark_of("dropped", [number])
        await write(publisher, DEAD_LETTERS, 0, None, value, headers)
    found = await newest(publisher.settings, Choice(), 2)
    assert [(letter.offset, handled) for letter, handled in found] == [(3, None), (4, None)]
    found = await newest(publisher.settings, Choice(), 20)
    assert [letter.offset for letter, _ in found] == [0, 1, 2, 3, 4]


async def test_the_commands(publisher, letters, monkeypatch):
    settings = publisher.settings
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", settings.kafka_bootstrap_servers)
    monkeypatch.setenv("FRESHET_TOPIC_PREFIX", settings.topic_prefix)
    monkeypatch.setenv("FRESHET_PARTITIONS", "4")

    async def run(*arguments):
        return await asyncio.to_thread(CliRunner().invoke, main, ["dead-letters", *arguments])

    listed = json.loads((await run("list", "--reason", "reason 4", "--json")).stdout)
    assert (listed[0]["letter"], listed[0]["message"], listed[0]["handled"]) == (4, "[1]", None)
    dry = json.loads((await run("replay", "--since", "1h", "--dry-run", "--json")).stdout)
    assert (dry["matched"], dry["would_be_replayed"]) == (5, 5)
    done = json.loads((await run("replay", "--offsets", "0-2", "--json")).stdout)
    assert done == {
        "matched": 3,
        "replayed": 3,
        "handled_before": 0,
        "failed": 0,
        "failures": [],
    }
    dropped = await run("drop", "--offsets", "3-")
    assert "dropped" in dropped.stdout
    assert "2" in dropped.stdout
    assert (await run("drop", "--offsets", "x")).exit_code == 2
    assert (await run("list", "--since", "yesterday")).exit_code == 2


class Record:
    """A record of `dead-letters`."""

    def __init__(self, offset, value, headers):
        self.offset, self.value, self.headers = offset, value, headers


def test_a_mark_speaks_of_what_came_before_it_only():
    value, headers = mark_of("dropped", [3, 4, 5, 9, 4])
    assert json.loads(value) == [[3, 5], [9, 9]]
    handled = Handled()
    handled.read(Record(5, value, headers))
    assert [handled.of(offset) for offset in (2, 3, 4, 5, 9)] == [
        *(None, "dropped", "dropped", None, None)
    ]
    assert Letter.read(Record(5, value, headers)) is None


def test_too_many_headers_are_left_out_and_it_says_so():
    class Source:
        topic, partition, offset, timestamp, key = "t", 0, 0, 0, b"k" * 70_000
        value, headers = None, [("a", b"x" * 70_000)]

    key, value, headers = letter_of(Source(), "s", "r", 0.0)
    assert (key, value) == (b"", None)
    assert {"cut-key-bytes", "cut-headers", "no-key"} <= dict(headers).keys()


@pytest.mark.parametrize(
    "headers", [[("", None)] * 7_200, [("\U0001f577" * 100, b"")] * 600, [("é" * 9, b"")] * 3_600]
)
@pytest.mark.parametrize("value", [810_000, 900_000])
def test_whatever_a_broker_has_taken_makes_a_letter_that_it_takes(value, headers):
    class Source:
        topic, partition, offset, timestamp, key = "t" * 249, 9_999, 2**62, 2**41, b"k" * 64 * 1024

    Source.value, Source.headers = b"v" * value, headers
    made = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1 << 30)
    made.append(0, 0, *letter_of(Source(), "estimator", "\U0001f577" * 1_000, 1.7e9))
    assert len(made.build()) < 1_048_588


def test_times_as_people_write_them():
    assert since_of("2h", 10_000.0) == 2_800.0
    assert since_of("1700000000") == 1_700_000_000.0
    with pytest.raises(ValueError, match="float"):
        since_of("yesterday")
