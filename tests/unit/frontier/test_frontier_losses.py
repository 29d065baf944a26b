"""What the broker has not taken, or a client has not, is not done: it is asked for once more."""

import pytest

from services.frontier.api.urlfrontier_pb2 import AckMessage, GetParams, KnownURLItem, URLItem
from services.frontier.book import Book
from services.frontier.giving import Giving
from services.frontier.names import Names
from services.frontier.putting import Putting
from services.frontier.refusing import NotStored
from services.frontier.room import Room
from shared.contracts.messages import CrawlRequest

NOW = 1.7e9
NAMES = Names("DEFAULT")
HOST = "a.example"


class Clock:
    """Stands."""

    def now(self):
        return NOW

    def span(self, seconds):
        return seconds


class Broker:
    """Is away until it is there."""

    is_away = True

    async def send(self, *_):
        if self.is_away:
            raise NotStored("the broker is away")


@pytest.fixture
def book():
    """Three requests for pages of one host, of offsets 0, 1 and 2."""
    made = Book(100)
    for number in range(3):
        url = f"https://{HOST}/{number}"
        request = CrawlRequest(
            f"r{number}", number, url, HOST, NOW - 1, NOW + 120, 1.0, 1.0, reason="value"
        )
        made.begin(request, 0, number, NOW)
    return made


def giving(book):
    return Giving(book, NAMES, Clock()).get(GetParams())


async def test_an_answer_that_is_not_stored_leaves_its_request_open(book):
    broker = Broker()
    putting = Putting(book, broker, None, NAMES, Clock())
    infos = [info async for info in giving(book)]
    item = URLItem(known=KnownURLItem(info=infos[0], refetchable_from_date=1))
    assert (await putting.put(item, Room(1))).status == AckMessage.FAIL
    # Whoever reads after a crash is asked for it again.
    assert book.in_flight() == 3
    assert book.positions.to_commit() == {}
    broker.is_away = False
    assert (await putting.put(item, Room(1))).status == AckMessage.OK
    assert book.in_flight() == 2
    assert book.positions.to_commit() == {0: 1}


async def test_what_a_client_did_not_wait_for_is_handed_out_anew_in_its_order(book):
    calling = giving(book)
    first = await anext(calling)
    await anext(calling)
    await calling.aclose()
    assert book.waiting() == 2, "of the second nobody knows whether it came"
    again = [info.url async for info in giving(book)]
    assert again == [f"https://{HOST}/1", f"https://{HOST}/2"]
    assert first.url == f"https://{HOST}/0"
