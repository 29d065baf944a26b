"""A queue's key is a host however it is written, and its rules are those that schedulers go by."""

import pytest

from services.frontier.api.urlfrontier_pb2 import BlockQueueParams, QueueDelayParams
from services.frontier.book import Book
from services.frontier.hosts import Hosts
from services.frontier.names import Names
from services.frontier.refusing import Refused
from shared.contracts.codec import decode, encode
from shared.contracts.messages import CrawlRequest, HostLimit
from shared.rules.host_rules import with_proper_host

NOW = 1.7e9


class Clock:
    """Stands."""

    def now(self):
        return NOW

    def span(self, seconds):
        return seconds


@pytest.fixture
def book():
    """Of a host whose pages are of https:// on port 80, a request waits."""
    made = Book(10)
    url, host = "https://odd.example:80/", "odd.example:80"
    made.begin(CrawlRequest("r", 1, url, host, NOW, NOW + 120, 1, 1, "value"), 0, 0, NOW)
    return made


@pytest.fixture
def sent():
    return []


@pytest.fixture
def hosts(book, sent):
    class Sender:
        async def send(self, topic, host, message):
            sent.append((host, decode(HostLimit, encode(message))))

    return Hosts(book, Sender(), Names("DEFAULT", book.knows), Clock())


KEYS = [
    ("example.com", "example.com"),
    ("Example.com:443", "example.com"),
    ("example.com:80", "example.com"),
    ("bücher.example:443", "xn--bcher-kva.example"),
    ("example.com:8080", "example.com:8080"),
    ("https://example.com:443", "example.com"),
    ("https://example.com:80", "example.com:80"),
    ("odd.example:80", "odd.example:80"),
    ("odd.example:443", "odd.example"),
]


@pytest.mark.parametrize(("key", "host"), KEYS)
async def test_a_rule_holds_for_the_host_that_its_key_names(hosts, sent, key, host):
    await hosts.block(BlockQueueParams(key=key, time=int(NOW) + 60))
    await hosts.delay(QueueDelayParams(key=key, delay_requestable=5))
    # The record stands where the host's pages are, and its readers take it for that host's.
    assert [(at, with_proper_host(limit).host) for at, limit in sent] == [(host, host)] * 2


async def test_what_waits_of_a_host_is_held_back_by_its_block(hosts, book):
    await hosts.block(BlockQueueParams(key="odd.example:80", time=int(NOW) + 60))
    assert book.take(0, 0, None, 0.0, NOW) == []


@pytest.mark.parametrize("key", ["", "a b", "example.com/", "a@example.com", "example.com?x", "x#"])
async def test_a_key_that_names_no_host_is_refused(hosts, sent, key):
    with pytest.raises(Refused):
        await hosts.block(BlockQueueParams(key=key, time=int(NOW) + 60))
    assert sent == []
