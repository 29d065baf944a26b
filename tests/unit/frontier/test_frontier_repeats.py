"""What a fleet says twice, late or elsewhere counts once, as read when it was handed out."""

import pytest

from services.frontier.api.urlfrontier_pb2 import GetParams, KnownURLItem, URLInfo, URLItem
from services.frontier.book import Book
from services.frontier.giving import Giving
from services.frontier.names import Names
from services.frontier.putting import Putting
from services.frontier.room import Room
from shared.contracts.identity import identify
from shared.contracts.messages import CrawlRequest
from shared.contracts.request_ids import microseconds, request_id_of

NOW = 1.7e9 + 0.123456
PAGE = identify("https://a.example/x")
NAMES = Names("DEFAULT")


class Clock:
    """Stands until it is set."""

    time = NOW

    def now(self):
        return self.time

    def span(self, seconds):
        return seconds


class Sender:
    """Keeps what is sent."""

    def __init__(self):
        self.sent = []

    async def send(self, topic, host, message):
        self.sent.append(message)


class Frontier:
    """One process's part in handing out and taking."""

    def __init__(self, clock, sender):
        self.book, self._clock = Book(100), clock
        self._giving = Giving(self.book, NAMES, clock)
        self._putting = Putting(self.book, sender, None, NAMES, clock)

    def read(self, request, offset=0):
        self.book.begin(request, 0, offset, self._clock.time)

    async def give(self):
        [info] = [info async for info in self._giving.get(GetParams())]
        return info

    async def put(self, info, **said):
        item = URLItem(known=KnownURLItem(info=info, refetchable_from_date=1))
        for key, value in said.items():
            item.known.info.metadata[key.replace("_", ".")].values[:] = [value]
        await self._putting.put(item, Room(1))


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def sender():
    return Sender()


@pytest.fixture
def frontier(clock, sender):
    return Frontier(clock, sender)


def request(at):
    """For the page, made at a time."""
    name = request_id_of(0, PAGE.page_id, int(microseconds(at)))
    return CrawlRequest(
        name, PAGE.page_id, PAGE.url, PAGE.host, at, at + 120, 1.0, 1.0, reason="value"
    )


def without(info, *keys):
    """What a crawler sends back that keeps less of the metadata."""
    left = URLInfo()
    left.CopyFrom(info)
    for key in keys:
        del left.metadata[key]
    return left


@pytest.mark.parametrize("lost", [(), ("freshet.given-at",)])
async def test_what_is_put_again_as_its_ack_was_lost_is_the_same_crawl(
    frontier, clock, sender, lost
):
    frontier.read(request(NOW - 1))
    info = without(await frontier.give(), *lost)
    for seconds in (5, 8, 11, 600):
        clock.time = NOW + seconds
        await frontier.put(info, fetch_statusCode="404")
    assert {outcome.crawled_at for outcome in sender.sent} == {NOW}
    assert all(outcome == sender.sent[0] for outcome in sender.sent)


async def test_a_crawler_whose_clock_is_fast_says_the_same_twice_and_it_counts_once(
    frontier, clock, sender
):
    frontier.read(request(NOW - 1))
    info = await frontier.give()
    for seconds in (2, 9):
        clock.time = NOW + seconds
        await frontier.put(info, **{"freshet_crawled-at": str(NOW + 6)})
    assert [outcome.crawled_at for outcome in sender.sent] == [NOW, NOW]


@pytest.mark.parametrize(
    ("lost", "read_at"),
    [
        ((), NOW),
        (("freshet.given-at",), NOW - 1),  # when it was asked for
    ],
)
async def test_an_answer_that_is_late_or_comes_elsewhere_was_read_when_it_was_handed_out(
    frontier, clock, sender, lost, read_at
):
    frontier.read(request(NOW - 1))
    info = without(await frontier.give(), *lost)
    clock.time = NOW + 200
    frontier.book.turn(clock.time)
    await frontier.put(info, signature="d")
    await frontier.put(info, signature="d")
    await Frontier(clock, sender).put(info, signature="d")
    assert [outcome.crawled_at for outcome in sender.sent] == pytest.approx([read_at] * 3, abs=1e-6)
    assert len({outcome.crawled_at for outcome in sender.sent}) == 1


async def test_a_frontier_that_was_restarted_takes_answers_to_what_was_handed_out_before(
    frontier, clock, sender
):
    asked = request(NOW - 1)
    frontier.read(asked)
    info = await frontier.give()
    again = Frontier(clock, sender)
    clock.time = NOW + 30
    again.read(asked)
    await again.put(info, signature="d")
    # What it hands out by itself is another crawl of the page.
    clock.time = NOW + 40
    again.read(request(NOW + 39), offset=1)
    await again.put(await again.give(), signature="d")
    assert [outcome.crawled_at for outcome in sender.sent] == [NOW, NOW + 40]


async def test_a_crawl_that_nobody_asked_for_was_read_when_it_is_told(frontier, clock, sender):
    await frontier.put(URLInfo(url=PAGE.url), signature="d")
    await frontier.put(URLInfo(url=PAGE.url), signature="d", **{"freshet_crawled-at": str(NOW - 3)})
    assert [outcome.crawled_at for outcome in sender.sent] == [NOW, NOW - 3]
