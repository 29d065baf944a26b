"""The books of a world go on whatever stands on the topics."""

import pytest

from services.world.books import BookKeeper
from services.world.budget import Budget
from services.world.ledger import Ledger
from services.world.plan import BudgetStep
from shared.contracts.codec import encode
from shared.contracts.messages import CrawlRequest
from shared.contracts.topics import BANDWIDTH, CRAWL_REQUESTS, DEAD_LETTERS
from shared.runtime.settings import load_settings

BAD = [
    None,
    b"",
    b"not json",
    b'{"crawls_per_second": NaN}',
    b'{"\xff": 1, "crawls_per_second": "\xff"}',
    b'{"crawls_per_second": 1, "x": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
]


class _Partition:
    def __init__(self, topic: str) -> None:
        self.topic = topic


class _Record:
    def __init__(self, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
        self.value, self.headers = value, headers
        self.timestamp, self.partition, self.offset, self.key = 1000, 0, 0, None


@pytest.fixture
def read(monkeypatch):
    """Lets the books of a run read records of a topic."""

    asked = []

    async def reading(topic, values, headers=()):
        records = {_Partition(topic.name): [_Record(value, list(headers)) for value in values]}

        class _Consumer:
            async def getmany(self, **_options):
                return records

        monkeypatch.setattr(
            "services.world.books.make_consumer", lambda _settings, **_options: _Consumer()
        )
        books = BookKeeper(load_settings(), lambda *_: None, lambda *told: asked.append(told))
        budget = Budget.from_steps([BudgetStep(0, 1.0)], 1.0)
        ledger = Ledger(origin=0.0, speed=1.0, started_at=0.0, budget=budget)
        await books.turn(ledger)
        return books, ledger

    reading.asked = asked
    return reading


@pytest.mark.parametrize("topic", [BANDWIDTH, CRAWL_REQUESTS], ids=lambda topic: topic.name)
async def test_what_cannot_be_read_is_counted_and_left_out(read, topic):
    books, ledger = await read(topic, BAD)

    assert books.unreadable == len(BAD)
    assert ledger.requests == 0


async def test_a_dead_letter_may_lack_what_belongs_to_it(read):
    _, ledger = await read(DEAD_LETTERS, [None, b"\xff"], [("topic", None), ("error", b"\xff")])

    assert ledger.dead_letters == 2


async def test_the_crawlers_are_told_what_stands_on_the_topic(read):
    request = CrawlRequest("r1", 7, "https://a.example/", "a.example", 1.0, 61.0, 1.0, 0.5, "value")
    _, ledger = await read(CRAWL_REQUESTS, [b"not json", encode(request)])

    assert read.asked == [([request], [(0, b"")])]
    assert (ledger.requests, ledger.in_flight) == (1, 1)
