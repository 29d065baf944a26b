"""What a host has no place for waits for it, and keeps no other host's pages from being crawled."""

import asyncio
from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest
from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st
from scrapy import Request
from scrapy.exceptions import IgnoreRequest
from scrapy.settings import Settings
from scrapy_freshet.book import Book
from scrapy_freshet.downloader_middleware import OutcomeMiddleware
from scrapy_freshet.fleet import Fleet
from scrapy_freshet.host_middleware import HostMiddleware
from scrapy_freshet.messages import CrawlOutcome, CrawlRequest
from scrapy_freshet.options import options_of
from scrapy_freshet.spider_middleware import ID_KEY

NOW, DEADLINE = 1_000.0, 1_120.0
AT_ONCE, OF_HOST = 16, 5


def asked(number, host="slow.example", deadline=DEADLINE):
    return CrawlRequest(f"r{number}", f"http://{host}/{number}", host, deadline)


@pytest.fixture
def counted():
    return Counter()


@pytest.fixture
def book(counted):
    return Book(lambda name: counted.update([name]), AT_ONCE, OF_HOST)


def read(book, *requests, partition=0, first=0):
    for offset, request in enumerate(requests, first):
        book.positions.begin(partition, offset)
        book.take(request, partition, offset, NOW)


def given_by(book, now=NOW):
    given = []
    while (request := book.next(now)) is not None:
        given.append(request)
    return given


def end(book, request):
    book.sent(book.close(request.request_id))


def test_a_slow_host_has_its_places_and_the_others_have_theirs(book):
    read(book, *(asked(n) for n in range(100)))
    slow = given_by(book)
    assert [request.request_id for request in slow] == [f"r{n}" for n in range(OF_HOST)]
    read(book, *(asked(n, f"{n}.example") for n in range(100, 104)), first=100)
    others = given_by(book)
    assert [request.request_id for request in others] == [f"r{n}" for n in range(100, 104)]
    assert book.waiting == 100 - OF_HOST
    for request in [slow[0], *others]:
        end(book, request)
    assert [request.request_id for request in given_by(book)] == [f"r{OF_HOST}"]


@given(st.integers(1, 40), st.integers(1, 40), st.lists(st.integers(0, 20), max_size=60))
def test_however_many_hosts_are_slow_the_next_one_has_a_place(at_once, of_host, hosts):
    book = Book(lambda name: None, at_once, of_host)
    read(book, *(asked(n, f"{host}.example") for n, host in enumerate(hosts)))
    of_hosts = Counter(request.host for request in given_by(book))
    assert of_hosts.total() <= at_once
    assert max(of_hosts.values(), default=0) <= of_host
    slow = len(of_hosts)
    read(book, asked("next", "quick.example"), first=len(hosts))
    assert bool(given_by(book)) == (slow < at_once)


def test_all_ports_of_a_host_share_its_places_as_scrapy_has_it(book):
    read(book, *(asked(n, f"slow.example:{n}") for n in range(20)))
    assert len(given_by(book)) == OF_HOST


def test_a_page_that_is_downloaded_leaves_its_place_to_the_next(book):
    read(book, *(asked(n) for n in range(OF_HOST + 1)))
    given = given_by(book)
    assert len(given) == OF_HOST
    book.find(given[0].request_id).outcome = CrawlOutcome("", "", "", NOW)
    assert [request.request_id for request in given_by(book)] == [f"r{OF_HOST}"]


@pytest.mark.parametrize("turns", [True, False])
def test_what_has_waited_for_its_host_until_the_deadline_is_left_alone(book, counted, turns):
    read(book, *(asked(n) for n in range(OF_HOST + 2)))
    given = given_by(book)
    for request in given:
        end(book, request)
    if turns:
        book.turn(DEADLINE)
    else:
        assert given_by(book, DEADLINE) == []
    assert book.waiting == 0
    assert counted["freshet/requests/expired"] == 2
    assert book.positions.to_commit() == {0: OF_HOST + 2}


def test_a_request_that_stands_on_the_topic_twice_holds_nothing_up(book):
    read(book, asked(0), asked(0), asked(1), asked(1))
    given = given_by(book)
    assert [request.request_id for request in given] == ["r0", "r1"]
    read(book, asked(0), first=4)
    for request in given:
        end(book, request)
    assert book.positions.to_commit() == {0: 5}


def test_a_request_counts_as_answered_once_the_broker_has_its_outcome(book):
    read(book, asked(0))
    [request] = given_by(book)
    sending = book.close(request.request_id)
    book.positions.forget(0)
    # After a rebalance it is read once more, amid the sending.
    read(book, asked(0))
    assert given_by(book) == []
    assert book.positions.to_commit() == {}
    book.sent(sending)
    assert book.positions.to_commit() == {0: 1}
    read(book, asked(0), first=1)
    assert given_by(book) == []
    assert book.positions.to_commit() == {0: 2}


@pytest.mark.parametrize(("answered", "position"), [(10, 5), (11, 26)])
def test_who_reads_on_makes_no_more_crawls_again_than_wait(book, counted, answered, position):
    read(book, *(asked(n) for n in range(15)))
    slow = given_by(book)
    read(book, *(asked(n, f"{n}.example") for n in range(15, 15 + answered)), first=15)
    while given := given_by(book):
        for request in given:
            end(book, request)
    for request in slow:
        end(book, request)
    book.leave({0})
    assert book.waiting == 0
    assert book.positions.to_commit() == {0: position}
    assert counted["freshet/requests/left"] == (10 if position == 26 else 0)


def test_what_waits_of_a_partition_that_is_anothers_now_is_not_crawled(book):
    read(book, *(asked(n) for n in range(9)))
    given_by(book)
    read(book, asked(9, "quick.example"), first=9)
    book.positions.forget(0)
    assert given_by(book) == []


class Topic:
    """Requests, as a consumer reads them."""

    def __init__(self, *requests):
        self._records = [
            SimpleNamespace(partition=0, offset=n, value=msgspec.json.encode(one), headers=())
            for n, one in enumerate(requests)
        ]

    async def getmany(self, timeout_ms, max_records):
        some, self._records = self._records[:max_records], self._records[max_records:]
        await asyncio.sleep(0)
        return {TopicPartition("crawl-requests", 0): some}


@pytest.fixture
def clock():
    return SimpleNamespace(now=NOW)


@pytest.fixture
def fleet(counted, clock):
    """A crawler's part that has a broker, of which it hears nothing."""
    fleet = Fleet(options_of(Settings()), lambda name: counted.update([name]), lambda: clock.now)
    fleet._producer = SimpleNamespace(send_and_wait=lambda *_, **__: asyncio.sleep(3600))
    return fleet


async def test_requests_of_other_hosts_are_read_past_those_of_a_slow_one(fleet):
    slow = [asked(n) for n in range(300)]
    fleet._consumer = Topic(*slow, *(asked(n, f"{n}.example") for n in range(300, 306)))
    requests = fleet.requests(lambda: True)
    async with asyncio.timeout(5):
        given = [await anext(requests) for _ in range(fleet.options.of_host + 6)]
    assert Counter(request.host == "slow.example" for request in given) == {True: 8, False: 6}


async def test_no_more_is_read_than_may_wait(fleet, monkeypatch):
    monkeypatch.setattr("scrapy_freshet.fleet.MOST_WAITING", 20)
    fleet._consumer = Topic(*(asked(n) for n in range(1_000)))

    async def read_on():
        async for _ in fleet.requests(lambda: True):
            pass

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(read_on(), 0.3)
    assert 20 <= fleet._book.waiting < 20 + fleet.options.max_in_flight


@pytest.mark.parametrize(
    "middleware", [lambda fleet: OutcomeMiddleware(None, fleet), HostMiddleware]
)
@pytest.mark.parametrize("gone", ["late", "answered"])
async def test_what_nobody_waits_for_any_more_is_not_downloaded(
    fleet, clock, counted, middleware, gone
):
    fleet._consumer = Topic(asked(0))
    given = await anext(fleet.requests(lambda: True))
    request = Request(given.url, meta={ID_KEY: given.request_id})
    middleware(fleet).process_request(request)
    if gone == "late":
        clock.now = DEADLINE
    else:
        fleet.fail(given.request_id)
    with pytest.raises(IgnoreRequest):
        middleware(fleet).process_request(request)
    assert counted["freshet/requests/expired"] == (gone == "late")
    assert len(fleet._sending) == (gone == "answered")
    assert fleet._book.positions.to_commit() == ({0: 1} if gone == "late" else {})
    for task in fleet._sending:
        task.cancel()
