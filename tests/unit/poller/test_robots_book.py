"""A robots.txt is asked for once, however many files of its host are to be read, also where it
cannot be had."""

import asyncio
from types import SimpleNamespace

import pytest
from multidict import CIMultiDict, CIMultiDictProxy

from services.poller.sites import robots_book
from services.poller.sites.politeness import Politeness
from services.poller.sites.robots_book import LONGEST_WAIT_SECONDS, NotYet, RobotsBook
from shared.discovery.busy import Busy
from shared.runtime.fetching import Fetched, FetchFailed, Unreached

DAY = 86_400.0
URL = "https://a.example/sitemap.xml"
FORBIDS = b"User-agent: *\nDisallow: /\n"


class Host:
    """Answers for its robots.txt, at a time that is set."""

    def __init__(self):
        self.status, self.body, self.asked, self.now = 200, b"", 0, 1000.0
        self.headers, self.error = {}, None
        self.book = RobotsBook(self, Politeness(0.0), "us", DAY)

    async def get(self, url, **_):
        self.asked += 1
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        headers = CIMultiDictProxy(CIMultiDict(self.headers))
        return Fetched(url, self.status, headers, self.body)

    async def fails(self, **more):
        """How it cannot be had."""
        with pytest.raises(FetchFailed) as failure:
            await self.book.rules_of(URL, **more)
        return failure.value


@pytest.fixture
def host(monkeypatch):
    made = Host()
    monkeypatch.setattr(robots_book, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


async def test_a_host_that_asks_for_a_pause_is_not_asked_before_it_is_over(host):
    host.status, host.headers = 503, {"Retry-After": "7200"}
    first = await host.fails()
    assert isinstance(first, Busy)
    assert first.seconds == 7200.0
    for _ in range(6):
        host.now += 1000.0
        again = await host.fails()
        assert isinstance(again, NotYet)
        assert str(again) == "its robots.txt answers 503"
    assert again.seconds == 1200.0
    assert host.asked == 1
    host.now, host.status = host.now + 1200.0, 200
    assert (await host.book.rules_of(URL)).allows(URL)
    assert host.asked == 2


async def test_nobody_asks_for_a_pause_of_more_than_a_day(host):
    host.status, host.headers = 429, {"Retry-After": "99999999"}
    await host.fails()
    assert (await host.fails()).seconds == DAY


@pytest.mark.parametrize("error", [None, Unreached("it takes longer than 60 s")])
async def test_a_host_whose_robots_txt_fails_is_asked_ever_more_rarely_and_then_as_ever(
    host, error
):
    host.status, host.error, waits = 500, error, []
    for _ in range(8):
        assert not isinstance(await host.fails(), NotYet)
        waits.append((await host.fails()).seconds)
        host.now += waits[-1]
    assert waits == [60.0, 120.0, 240.0, 480.0, 960.0, *[LONGEST_WAIT_SECONDS] * 3]
    assert host.asked == 8
    host.status, host.error = 200, None
    await host.book.rules_of(URL)
    host.now, host.status = host.now + DAY, 500
    await host.book.rules_of(URL)
    # It could be had meanwhile: the first failure is the first.
    assert (await host.fails(anew=True)).seconds == 60.0


async def test_who_waited_for_another_to_ask_does_not_ask_the_same(host):
    await asyncio.gather(*(host.book.rules_of(URL) for _ in range(5)))
    assert host.asked == 1
    host.now, host.error = host.now + DAY, Unreached("it takes longer than 60 s")
    host.book._known.clear()
    failed = await asyncio.gather(
        *(host.book.rules_of(URL) for _ in range(5)), return_exceptions=True
    )
    assert [type(failure) for failure in failed] == [Unreached, *[NotYet] * 4]
    assert host.asked == 2


async def test_what_it_said_last_holds_while_it_cannot_be_had(host):
    host.body = FORBIDS
    await host.book.rules_of(URL)
    host.status = 503
    await host.fails(anew=True)
    for _ in range(3):
        host.now += DAY
        assert not (await host.book.rules_of(URL)).allows(URL)


async def test_of_more_hosts_than_are_remembered_the_last_ones_are(host, monkeypatch):
    monkeypatch.setattr(robots_book, "MOST_KNOWN", 3)
    for number in range(10):
        host.status = 500 if number % 2 else 200
        assert await host.book.rules_at([f"https://{number}.example/"]) or host.status == 500
    assert len(host.book._known) == len(host.book._failing) == 3
