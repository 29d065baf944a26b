"""A host is asked one thing at a time, with a gap, as rarely as its robots.txt wants it, and not at
all while it asks for a pause or is away."""

import asyncio
import math
from types import SimpleNamespace

import pytest

from services.poller.sites import politeness, polling
from services.poller.sites.fetching import Same
from services.poller.sites.politeness import Politeness
from services.poller.sites.polling import SitePoller
from services.poller.sites.robots_book import NotYet
from shared.discovery.busy import Busy
from shared.discovery.robots import Robots
from shared.runtime.fetching import FetchFailed, Unreached
from shared.runtime.settings import Settings
from shared.store.watched import DueSource, note_poll_failed

HOST, OTHER = "a.example", "b.example"
GAP = 2.0
NOW = 1_700_000_000.0


class Clock:
    """Time passes where somebody sleeps."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now

    async def sleep(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(politeness, "time", clock)
    waiting = SimpleNamespace(Lock=asyncio.Lock, sleep=clock.sleep)
    monkeypatch.setattr(politeness, "asyncio", waiting)
    return clock


async def ask(polite, host, clock, crawl_delay=0.0, takes=0.5):
    """When a host is asked, by a request that takes so long."""
    async with polite.turn(host, crawl_delay):
        began = clock.now
        clock.now += takes
    return began


async def test_between_two_requests_is_a_gap_or_the_hosts_own_delay_if_that_is_longer(clock):
    polite = Politeness(GAP)
    assert await ask(polite, HOST, clock) == 100.0
    assert await ask(polite, OTHER, clock) == 100.5, "another host is not in the way"
    # From the end of one to the beginning of the next.
    assert await ask(polite, HOST, clock, crawl_delay=10.0) == 100.5 + GAP
    assert await ask(polite, HOST, clock, crawl_delay=1.0) == 103.0 + 10.0
    assert await ask(polite, HOST, clock) == 113.5 + GAP
    clock.now += 60.0
    assert await ask(polite, HOST, clock) == 176.0, "nobody waits for what is over"


async def test_a_host_has_one_request_at_a_time_and_also_one_that_failed_counts(clock):
    polite, began = Politeness(GAP), []

    async def first():
        async with polite.turn(HOST, 0.0):
            for _ in range(5):
                await asyncio.sleep(0)
            assert began == []
            assert polite.busy() == [HOST]
            clock.now += 30.0
            raise OSError("reset")

    async def second():
        began.append(await ask(polite, HOST, clock))

    failed, _ = await asyncio.gather(first(), second(), return_exceptions=True)
    assert isinstance(failed, OSError)
    assert began == [130.0 + GAP]


async def test_a_host_that_asks_for_a_pause_is_busy_until_it_is_over(clock):
    polite = Politeness(GAP)
    polite.pause(HOST, 60.0)
    polite.pause(HOST, 5.0)  # of a request that was under way; the longer one holds
    clock.now += 59.0
    assert polite.busy() == [HOST]
    clock.now += 1.5
    assert polite.busy() == []


async def test_of_more_hosts_than_are_remembered_those_that_wait_are(clock, monkeypatch):
    monkeypatch.setattr(politeness, "MOST_HOSTS", 3)
    polite = Politeness(GAP)
    polite.pause(HOST, 60.0)
    for number in range(20):
        await ask(polite, f"{number}.example", clock)
        clock.now += GAP
    assert polite.busy() == [HOST]
    assert len(polite._hosts) <= 3


@pytest.fixture
def poller(clock, monkeypatch):
    """Whose requests go to nobody: what its `answer` says comes back."""
    made = SitePoller(Settings(poller_host_gap_seconds=GAP), None, None)
    made.answer, made.waits = Same("", ""), []

    async def fetch(*_):
        if isinstance(made.answer, Exception):
            raise made.answer
        return made.answer

    async def rules_of(_url, *, anew):
        return Robots("us", crawl_delay=7.0)

    async def nothing(*_):
        return 0.0

    async def ask(question, *arguments):
        if question is note_poll_failed:
            made.waits.append(arguments[2] - NOW)
        return 0.0

    monkeypatch.setattr(polling, "WALL", SimpleNamespace(now=lambda: NOW))
    monkeypatch.setattr(polling, "fetch", fetch)
    made._robots = SimpleNamespace(rules_of=rules_of)
    made._questions = SimpleNamespace(ask=ask)
    made._prices = SimpleNamespace(of_slot=nothing)
    yield made
    made.stop()


async def poll(poller, failures=0):
    due = DueSource(
        *(f"https://{HOST}/sitemap.xml", f"https://{HOST}/", HOST, "site:a", "", "robots"),
        *("", "", b"", b"", 0.0, failures, -math.inf, False, 0.0, 0.0, 0.0, [HOST], [], []),
    )
    poller._under_way[due.url], poller._hosts[due.url] = None, due.host
    await poller._poll(due)


async def test_what_robots_txt_and_the_host_itself_want_is_what_polls_go_by(poller, clock):
    await poll(poller)
    clock.now += 6.9
    assert poller._politeness.busy() == [HOST]
    clock.now += 0.2
    assert poller._politeness.busy() == []
    poller.answer = Busy("it answers 429", 3000.0)
    await poll(poller)
    clock.now += 2999.0
    assert poller._politeness.busy() == [HOST]
    clock.now += 2.0
    assert poller._politeness.busy() == []


@pytest.mark.parametrize(
    ("answer", "wait", "pause"),
    [
        # How often this file has failed says nothing of the others.
        (Busy("it answers 503", None), 86_400.0, 60.0),
        (Busy("it answers 429", 5.0), 86_400.0, 5.0),
        (Busy("it answers 429", 1e9), 86_400.0, 86_400.0),
        (Unreached("it takes longer than 60 s"), 86_400.0, 60.0),
        # Other files of the host are well, or may be.
        (FetchFailed("it answers 404"), 86_400.0, GAP),
        (NotYet("its robots.txt answers 503", 500.0), 86_400.0, GAP),
    ],
    ids=lambda value: str(value) if isinstance(value, Exception) else None,
)
async def test_a_file_that_always_fails_keeps_the_others_of_its_host_waiting_for_a_little(
    poller, clock, answer, wait, pause
):
    poller.answer, clock.now = answer, 1e6
    await poll(poller, failures=11)
    assert poller.waits == [wait]
    clock.now += max(pause, 7.0) - 0.5
    assert poller._politeness.busy() == [HOST]
    clock.now += 1.0
    assert poller._politeness.busy() == []


async def test_a_file_waits_for_a_robots_txt_until_that_is_asked_for_again(poller):
    poller.answer = NotYet("its robots.txt answers 503", 500.0)
    await poll(poller)
    assert poller.waits == [500.0]
