"""A batch of links, from the records to the acknowledgement."""

from types import SimpleNamespace

import psycopg
import pytest

from services.discoverer import handler as handling
from services.discoverer.handler import DiscoveryHandler, pieces_of
from shared.contracts.codec import decode, encode
from shared.contracts.messages import Discovery, PageUpdate
from shared.discovery.admission import Admission
from shared.discovery.rules import DiscoveryRules
from shared.runtime.isolation import TooManyBadMessages
from shared.runtime.settings import Settings


class Known:
    """Knows every host and no page; fails as often as it is told to."""

    def __init__(self):
        self.failures = []

    async def pages(self, pages):
        if self.failures:
            raise self.failures.pop(0)
        return set()

    async def hosts(self, hosts, now):
        return set(hosts)

    async def let_in(self, pages, most, now):
        return {page.page_id: "new" for page in pages}


class Publisher:
    """Notes what is published, and in how many goes."""

    def __init__(self):
        self.goes, self.letters, self.failures = [], [], []

    async def partitions_of(self, topic):
        return 4

    async def send_batches(self, messages):
        if self.failures:
            raise self.failures.pop(0)
        values = [value for part in messages.values() for _, value in part]
        self.goes.append([decode(PageUpdate, value).url for value in values])

    async def dead_letter(self, record, stage, reason):
        self.letters.append((record.value, stage))

    async def flush(self):
        pass


@pytest.fixture
def parts():
    settings = Settings(bad_messages_least=10)
    known, publisher = Known(), Publisher()
    admission = Admission(DiscoveryRules.of(settings), known)
    return DiscoveryHandler(settings, settings.clock(), publisher, admission), known, publisher


def record(*links, value=None):
    value = encode(Discovery("https://a.example/", list(links))) if value is None else value
    return SimpleNamespace(topic="discoveries", value=value, timestamp=1000)


def spellings(number):
    return [f"https://a.example/{number}", f"HTTPS://A.example:443/{number}#part"]


async def test_a_page_is_said_once_however_its_links_are_written(parts):
    handler, _, publisher = parts
    await handler.handle([record(*spellings(1), *spellings(2)), record(*spellings(1))])
    await handler.handle([record(*spellings(1))])
    assert publisher.goes == [["https://a.example/1", "https://a.example/2"]]


async def test_a_database_that_is_away_is_asked_again_and_said_to_be_away(parts):
    handler, known, publisher = parts
    known.failures = [psycopg.OperationalError("the server is away")] * 2
    said, sending = [], publisher.send_batches

    async def note(messages):
        said.append(handler.trouble)
        await sending(messages)

    publisher.send_batches = note
    await handler.handle([record("https://a.example/1")])
    assert publisher.goes == [["https://a.example/1"]]
    assert said == ["the database does not answer: the server is away"]
    assert handler.trouble is None


async def test_a_right_that_was_taken_away_is_waited_for(parts):
    handler, known, publisher = parts
    known.failures = [psycopg.errors.InsufficientPrivilege("permission denied for table pages")]
    await handler.handle([record("https://a.example/1")])
    assert publisher.goes == [["https://a.example/1"]]


async def test_what_waiting_cannot_help_is_not_tried_again(parts):
    handler, known, publisher = parts
    known.failures = [psycopg.errors.UndefinedTable("relation does not exist")]
    with pytest.raises(psycopg.errors.UndefinedTable):
        await handler.handle([record("https://a.example/1")])
    assert publisher.goes == []


async def test_a_large_batch_is_done_piece_by_piece(parts, monkeypatch):
    handler, _, publisher = parts
    records = [record(f"https://a.example/{number:04}") for number in range(30)]
    monkeypatch.setattr(handling, "PIECE_BYTES", 3 * len(records[0].value))
    assert [len(piece) for piece in pieces_of(records)] == [3] * 10
    assert [one for piece in pieces_of(records[:4]) for one in piece] == records[:4]
    assert list(pieces_of([])) == []
    await handler.handle(records)
    assert publisher.goes == [
        [f"https://a.example/{number:04}" for number in range(first, first + 3)]
        for first in range(0, 30, 3)
    ]


async def test_bad_messages_are_set_aside_unless_they_are_too_many(parts):
    handler, _, publisher = parts
    bad = record(value=b"rubbish")
    await handler.handle([bad, record("https://a.example/1")])
    assert publisher.letters == [(b"rubbish", "discoverer")]
    with pytest.raises(TooManyBadMessages, match="discoveries"):
        await handler.handle([bad] * 20)
    assert len(publisher.letters) == 1


async def test_what_was_not_acknowledged_is_not_taken_for_known(parts):
    handler, _, publisher = parts
    publisher.failures = [RuntimeError()]
    with pytest.raises(RuntimeError):
        await handler.handle([record("https://a.example/1")])
    await handler.handle([record("https://a.example/1")])
    assert publisher.goes == [["https://a.example/1"]]
